"""Scoring: truth and predictions of one split to scores, one module a task."""

from collections.abc import Mapping

from reftables.rows import Task

# What each task is measured by; the first is its main metric.
METRICS: Mapping[Task, tuple[str, ...]] = {
    Task.BOXES: ("precision@1", "mean_box", "upper_bound", "mean_iou"),
    Task.POINTS: ("accuracy", "any_hit", "first_point"),
    Task.ANSWERS: ("score", "request_accuracy"),
    Task.MASKS: (
        "mean_iou",
        "overall_iou",
        *(f"precision@0.{tenths}" for tenths in range(5, 10)),
        "gres_giou",
        "gres_ciou",
        "n_acc",
        "t_acc",
        "box_precision@0.5",
    ),
}
