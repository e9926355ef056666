"""Draw the bundled sample: seeded scenes in the real file formats of all four benchmark families.

OUT  resources/sample/: annotations, masks, questions, images, manifest.tsv (folder and seed are config keys)
"""


rule sample:
    output:
        expand("{folder}/{name}", folder=CONFIG.sample["folder"], name=SAMPLE_OUTPUTS),
    log:
        "results/logs/sample.log",
    benchmark:
        "results/timings/sample.tsv"
    conda:
        "../../envs/core.yaml"
    resources:
        mem_mb=500,
        runtime=10,
    params:
        lineage=short([code("stages.sample"), CONFIG.sample["seed"]]),
        folder=lambda wildcards, output: os.path.dirname(output[-1]),
        seed=CONFIG.sample["seed"],
    shell:
        "python -m reftables.stages.sample --folder={params.folder:q} --seed {params.seed} > {log:q} 2>&1"
