"""Say what a run would do before it starts: `snakemake plan`. Only prints.

IN   results/config.json, and whatever is there already: requests, manifests, stores
OUT  nothing
"""


rule plan:
    log:
        "results/logs/plan.log",
    conda:
        "../../envs/core.yaml"
    resources:
        mem_mb=500,
        runtime=10,
    params:
        config=paths.CONFIG,
        known_by=short(config),
    shell:
        "python -m reftables.stages.plan --config {params.config:q} --known-by {params.known_by} 2>&1 | tee {log:q}"
