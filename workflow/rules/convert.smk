"""Convert the files of a benchmark: its truth once a split, its requests once a (split, prompt family).

IN   the source's files (annotations, masks, metadata), local or made by a rule
OUT  results/truth/{benchmark}/{split}.jsonl and .notes.json
     results/requests/{benchmark}/{split}.{prompt}.locout
     results/manifests/{benchmark}/{split}.tsv (only for models that open images), and those images
"""


rule truth:
    input:
        lambda wildcards: files_of(
            benchmark_of(wildcards).module.truth_files(
                benchmark_of(wildcards).settings(wildcards.split), wildcards.split
            )
        ),
    output:
        truth=paths.TRUTH,
        notes=paths.NOTES,
    log:
        "results/logs/truth/{benchmark}/{split}.log",
    benchmark:
        "results/timings/truth/{benchmark}/{split}.tsv"
    conda:
        "../../envs/core.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        lineage=lambda wildcards: canonical_json(LINEAGES.truth(benchmark_of(wildcards), wildcards.split)),
        task=lambda wildcards: str(benchmark_of(wildcards).task),
        source=lambda wildcards: benchmark_of(wildcards).source,
        settings=settings_of,
        expected=lambda wildcards: given("--expected", benchmark_of(wildcards).splits[wildcards.split]),
    shell:
        "python -m reftables.stages.truth --benchmark {wildcards.benchmark:q} --split {wildcards.split:q}"
        " --task {params.task:q} --source {params.source:q} --settings {params.settings:q} {params.expected}"
        " --truth {output.truth:q} --notes {output.notes:q} > {log:q} 2>&1"


rule requests:
    input:
        truth=paths.TRUTH,
        files=lambda wildcards: benchmark_of(wildcards).module.request_files(
            benchmark_of(wildcards).settings(wildcards.split), wildcards.split, wildcards.prompt
        ),
    output:
        paths.REQUESTS,
    log:
        "results/logs/requests/{benchmark}/{split}.{prompt}.log",
    benchmark:
        "results/timings/requests/{benchmark}/{split}.{prompt}.tsv"
    conda:
        "../../envs/core.yaml"
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        lineage=lambda wildcards: canonical_json(
            LINEAGES.requests(benchmark_of(wildcards), wildcards.split, wildcards.prompt)
        ),
        source=lambda wildcards: benchmark_of(wildcards).source,
        settings=settings_of,
    shell:
        "python -m reftables.stages.requests --split {wildcards.split:q} --prompt {wildcards.prompt:q}"
        " --source {params.source:q} --settings {params.settings:q}"
        " --truth {input.truth:q} --requests {output:q} > {log:q} 2>&1"


rule manifest:
    input:
        truth=paths.TRUTH,
        archive=lambda wildcards: image_archive(images_of(wildcards)),
    output:
        paths.MANIFEST,
    log:
        "results/logs/manifest/{benchmark}/{split}.log",
    benchmark:
        "results/timings/manifest/{benchmark}/{split}.tsv"
    conda:
        "../../envs/core.yaml"
    resources:
        downloads=lambda wildcards: int(images_of(wildcards) is not None),
        mem_mb=500,
        runtime=1440,
    params:
        root=lambda wildcards: benchmark_of(wildcards).image_root(wildcards.split),
        # Asking for `output` keeps Snakemake from tracking the value: images are known by their content.
        source=lambda wildcards, output: image_source(images_of(wildcards)),
        code=code("manifest"),
    shell:
        "python -m reftables.stages.manifest --truth {input.truth:q} --root={params.root:q} {params.source}"
        " --manifest {output:q} > {log:q} 2>&1"
