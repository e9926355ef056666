"""Score one split of one model.

IN   results/truth/{benchmark}/{split}.jsonl and .notes.json, results/predictions/{model}/{benchmark}/{split}.jsonl,
     the digests of what was downloaded for them
OUT  results/metrics/{model}/{benchmark}/{split}.json, results/samples/{model}/{benchmark}/{split}.csv
"""


rule score:
    input:
        truth=paths.TRUTH,
        notes=paths.NOTES,
        predictions=paths.PREDICTIONS,
        manifest=lambda wildcards: CONFIG.manifest(cell_of(wildcards))[0] or [],
        digests=lambda wildcards: [download.digest for download in CONFIG.downloads_behind(cell_of(wildcards).files())],
    output:
        metrics=paths.METRICS,
        samples=paths.SAMPLES,
    log:
        "results/logs/score/{model}/{benchmark}/{split}.log",
    benchmark:
        "results/timings/score/{model}/{benchmark}/{split}.tsv"
    conda:
        "../../envs/core.yaml"
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        lineage=lambda wildcards: canonical_json(LINEAGES.metrics(cell_of(wildcards))),
        task=lambda wildcards: str(benchmark_of(wildcards).task),
        form=lambda wildcards: format_of(cell_of(wildcards)),
        options=lambda wildcards: canonical_json(benchmark_of(wildcards).scoring),
        limit=given("--limit", CONFIG.limit),
        digests=lambda wildcards, input: " ".join(given("--digests", path) for path in input.digests),
    shell:
        "python -m reftables.stages.score --model {wildcards.model:q} --benchmark {wildcards.benchmark:q}"
        " --split {wildcards.split:q} --task {params.task:q} --format {params.form:q} --options {params.options:q}"
        " {params.limit} {params.digests} --lineage {params.lineage:q} --truth {input.truth:q} --notes {input.notes:q}"
        " --predictions {input.predictions:q} --metrics {output.metrics:q} --samples {output.samples:q} > {log:q} 2>&1"
