"""Stages: one module a Snakemake rule; each reads files, calls the package, writes atomically."""
