"""reftables: the evaluation tables of visual-grounding papers, reproduced.

Snakemake decides what to run, this package does it, and files with plain contracts lie between.
"""
