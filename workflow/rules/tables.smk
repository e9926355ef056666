"""Render the tables: ours beside the published, for all selected models and benchmarks.

IN   results/expected.json, results/config.json, results/metrics/{model}/{benchmark}/{split}.json, results/analysis.json
OUT  results/tables.md, results/tables.csv, results/tables.tex, results/tables/{table}.csv, results/index.html,
     results/provenance.json (what it takes to repeat the run)
"""


rule tables:
    input:
        expected=paths.EXPECTED,
        metrics=[cell["metrics"] for cell in EXPECTED["cells"]],
        analysis=paths.ANALYSIS,
        logs=FAIRSEQ_LOGS,  # read by nobody here: whoever asks for the tables gets them too
    output:
        markdown=report(paths.TABLES_MD, caption="../report/tables.rst", category="Tables"),
        tidy=report(paths.TABLES_CSV, caption="../report/tidy.rst", category="Tables"),
        latex=paths.TABLES_TEX,
        wide=expand(paths.TABLE, table=list(EXPECTED["tables"])),
        index=report(paths.INDEX, caption="../report/index.rst", category="Tables"),
        provenance=report(paths.PROVENANCE, caption="../report/provenance.rst", category="Provenance"),
    log:
        "results/logs/tables.log",
    benchmark:
        "results/timings/tables.tsv"
    conda:
        "../../envs/core.yaml"
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        lineage=tables_lineage(),
        selection=short(EXPECTED),
        config=paths.CONFIG,
        # Asking for `output` keeps Snakemake from tracking the value: it is recorded, and decides no number.
        known_by=lambda wildcards, output: short(config),
    shell:
        "python -m reftables.stages.render --expected {input.expected:q} --selection {params.selection:q}"
        " --analysis {input.analysis:q} --config {params.config:q} --known-by {params.known_by} --results results"
        " > {log:q} 2>&1"
