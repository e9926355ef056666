"""Render the tables: ours beside the published, for all selected models and benchmarks.

IN   results/expected.json, results/metrics/{model}/{benchmark}/{split}.json
OUT  results/tables.md, results/tables.csv, results/tables/{table}.csv, results/index.html
"""


rule tables:
    input:
        expected=paths.EXPECTED,
        metrics=[cell["metrics"] for cell in EXPECTED["cells"]],
    output:
        markdown=report(paths.TABLES_MD, caption="../report/tables.rst", category="Tables"),
        tidy=report(paths.TABLES_CSV, caption="../report/tidy.rst", category="Tables"),
        wide=expand(paths.TABLE, table=list(EXPECTED["tables"])),
        index=report(paths.INDEX, caption="../report/index.rst", category="Tables"),
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
    shell:
        "python -m reftables.stages.render --expected {input.expected:q} --results results > {log:q} 2>&1"
