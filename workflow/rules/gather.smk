"""Gather the shards of a split, where a model has more than one: every sample once, none missing.

IN   results/shards/{model}/{benchmark}/{split}.{shard}-of-{shards}.jsonl, the request file for the ids
OUT  results/predictions/{model}/{benchmark}/{split}.jsonl
"""


rule gather:
    input:
        shards=lambda wildcards: expand(
            paths.SHARD,
            shard=range(CONFIG.models[wildcards.model].shards),
            shards=CONFIG.models[wildcards.model].shards,
            **dict(wildcards.items()),
        ),
        requests=lambda wildcards: paths.REQUESTS.format(
            prompt=cell_of(wildcards).form.prompt, **dict(wildcards.items())
        ),
        truth=lambda wildcards: paths.TRUTH.format(**dict(wildcards.items())) if CONFIG.limit else [],
        manifest=lambda wildcards: CONFIG.manifest(cell_of(wildcards))[0],
    output:
        paths.PREDICTIONS,
    log:
        "results/logs/gather/{model}/{benchmark}/{split}.log",
    benchmark:
        "results/timings/gather/{model}/{benchmark}/{split}.tsv"
    wildcard_constraints:
        model=any_of(model.name for model in CONFIG.models.values() if model.shards > 1),
    conda:
        "../../envs/core.yaml"
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        lineage=lambda wildcards: canonical_json(LINEAGES.predictions(cell_of(wildcards))),
        form=lambda wildcards: format_of(cell_of(wildcards)),
        truth=lambda wildcards, input: given("--truth", input.truth or None),
        limit=given("--limit", CONFIG.limit),
        # Not their names: those of a thousand would be longer than a command may be.
        shard=lambda wildcards: paths.fill(paths.SHARD, **dict(wildcards.items())),
        shards=lambda wildcards: CONFIG.models[wildcards.model].shards,
    shell:
        "python -m reftables.stages.gather --format {params.form:q} --requests {input.requests:q} {params.truth}"
        " {params.limit} --shard {params.shard:q} --shards {params.shards} --predictions {output:q} > {log:q} 2>&1"
