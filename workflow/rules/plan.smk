"""Say what a run would do before it starts: `snakemake plan`. Only prints.

IN   whatever is there already: requests, manifests, stores
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
        # A function: the braces of templates are no wildcards of this rule.
        config=lambda wildcards: json.dumps(config),
    shell:
        "python -m reftables.stages.plan --config {params.config:q} 2>&1 | tee {log:q}"
