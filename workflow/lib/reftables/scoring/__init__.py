"""Scoring: truth and predictions of one split to scores, one module a task."""
