"""Write what models answer in the notation of Kosmos-2 as a fairseq log too, for the authors' own scorer.

IN   results/predictions/{model}/{benchmark}/{split}.jsonl
OUT  results/predictions/{model}/{benchmark}/{split}.fairseq.out
"""


rule fairseq:
    input:
        paths.PREDICTIONS,
    output:
        paths.FAIRSEQ_LOG,
    log:
        "results/logs/fairseq/{model}/{benchmark}/{split}.log",
    benchmark:
        "results/timings/fairseq/{model}/{benchmark}/{split}.tsv"
    conda:
        "../../envs/core.yaml"
    resources:
        mem_mb=500,
        runtime=10,
    params:
        lineage=lambda wildcards: canonical_json([LINEAGES.predictions(cell_of(wildcards)), code("stages.fairseq")]),
    shell:
        "python -m reftables.stages.fairseq --predictions {input:q} --log {output:q} > {log:q} 2>&1"


# Those of models that were run here; of baselines and recorded answers on request.
FAIRSEQ_LOGS = [
    paths.FAIRSEQ_LOG.format(model=cell.model.name, benchmark=cell.benchmark.name, split=cell.split)
    for cell in CELLS.values()
    if cell.model.module.STORED and cell.form.notation == "kosmos"
]
