"""Make pages of samples to look at: `snakemake gallery`. No table needs them.

IN   results/truth/{benchmark}/{split}.jsonl, results/requests/{benchmark}/{split}.{prompt}.locout,
     results/predictions/{model}/{benchmark}/{split}.jsonl, results/samples/{model}/{benchmark}/{split}.csv,
     the images, where they are at hand
OUT  results/gallery/{model}/{benchmark}/{split}.html, results/gallery/index.html, results/gallery/gallery.js
     results/gallery/thumbnails/ (added to, never declared: other samples must not make the old pictures anew)
"""


rule gallery_page:
    input:
        truth=paths.TRUTH,
        requests=lambda wildcards: paths.REQUESTS.format(
            benchmark=wildcards.benchmark, split=wildcards.split, prompt=cell_of(wildcards).form.prompt
        ),
        predictions=paths.PREDICTIONS,
        samples=lambda wildcards: [
            paths.SAMPLES.format(model=model, benchmark=wildcards.benchmark, split=wildcards.split)
            for model in models_on(wildcards)
        ],
    output:
        paths.GALLERY,
    log:
        "results/logs/gallery_page/{model}/{benchmark}/{split}.log",
    benchmark:
        "results/timings/gallery_page/{model}/{benchmark}/{split}.tsv"
    conda:
        "../../envs/core.yaml"
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        lineage=gallery_lineage("stages.gallery"),
        task=lambda wildcards: str(benchmark_of(wildcards).task),
        form=lambda wildcards: format_of(cell_of(wildcards)),
        others=lambda wildcards: [model for model in models_on(wildcards) if model != wildcards.model],
        each=CONFIG.gallery["each"],
        side=CONFIG.gallery["side"],
        thumbnails=paths.THUMBNAILS,
    shell:
        "python -m reftables.stages.gallery --model {wildcards.model:q} --benchmark {wildcards.benchmark:q}"
        " --split {wildcards.split:q} --task {params.task:q} --format {params.form:q} --others {params.others:q}"
        " --each {params.each} --side {params.side} --truth {input.truth:q} --requests {input.requests:q}"
        " --predictions {input.predictions:q} --thumbnails {params.thumbnails:q} --page {output:q} > {log:q} 2>&1"


rule gallery:
    input:
        expected=paths.EXPECTED,
        pages=[paths.GALLERY.format(**cell) for cell in EXPECTED["cells"]],
    output:
        index=paths.GALLERY_INDEX,
        script=paths.GALLERY_SCRIPT,
    log:
        "results/logs/gallery.log",
    benchmark:
        "results/timings/gallery.tsv"
    conda:
        "../../envs/core.yaml"
    resources:
        mem_mb=500,
        runtime=10,
    params:
        lineage=gallery_lineage("stages.gallery_index"),
    shell:
        "python -m reftables.stages.gallery_index --expected {input.expected:q} --index {output.index:q}"
        " --script {output.script:q} > {log:q} 2>&1"
