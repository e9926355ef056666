"""Predict a split: one rule a model, so that each asks for its own resources.

IN   results/requests/{benchmark}/{split}.{prompt}.locout, the truth for backends that may see it,
     the manifest for backends that open images, the local answer files of recorded models
OUT  results/predictions/{model}/{benchmark}/{split}.jsonl, or, where `exec.shards` is more than one,
     results/shards/{model}/{benchmark}/{split}.{shard}-of-{shards}.jsonl, removed once they are gathered
     results/store/{model}/{benchmark}/ (appended to, never declared: a failed job must not lose an answer)
"""

for _model in CONFIG.models.values():
    # Of file names, where a job predicts a part of the split.
    _part = f".{{shard}}-of-{_model.shards}" if _model.shards > 1 else ""

    rule:
        name:
            f"infer_{_model.name}"
        input:
            requests=lambda wildcards, m=_model.name: paths.REQUESTS.format(
                prompt=cell_of(wildcards, m).form.prompt, **dict(wildcards.items())
            ),
            truth=lambda wildcards, m=_model: (
                paths.TRUTH.format(**dict(wildcards.items())) if m.module.READS_TRUTH or CONFIG.limit else []
            ),
            manifest=lambda wildcards, m=_model.name: CONFIG.manifest(cell_of(wildcards, m))[0] or [],
            answers=lambda wildcards, m=_model: files_of(
                m.module.answer_files(m.identity, model=m.name, benchmark=wildcards.benchmark, split=wildcards.split)
            ),
        output:
            temp(paths.SHARD.replace("{model}", _model.name).replace("{shards}", str(_model.shards)))
            if _part
            else paths.PREDICTIONS.replace("{model}", _model.name),
        log:
            f"results/logs/infer_{_model.name}/{{benchmark}}/{{split}}{_part}.log",
        benchmark:
            f"results/timings/infer_{_model.name}/{{benchmark}}/{{split}}{_part}.tsv"
        # On a cluster, what only reads files runs beside snakemake: queueing would take longer.
        localrule: not _model.module.LOOKS
        conda:
            f"../../envs/{_model.execution['env']}.yaml"
        threads: _model.execution["threads"]
        resources:
            mem_mb=lambda wildcards, attempt, m=_model: m.execution["mem_mb"] * attempt,
            runtime=_model.execution["runtime"],
            gpu=_model.execution["gpu"],
            api_slots=_model.execution["api_slots"],
        params:
            lineage=lambda wildcards, m=_model.name: canonical_json(LINEAGES.predictions(cell_of(wildcards, m))),
            model=_model.name,
            # A function: the braces of path templates are no wildcards.
            identity=lambda wildcards, m=_model: canonical_json(m.identity),
            task=lambda wildcards: str(benchmark_of(wildcards).task),
            form=lambda wildcards, m=_model.name: format_of(cell_of(wildcards, m)),
            truth=lambda wildcards, input: given("--truth", input.truth or None),
            manifest=lambda wildcards, input: given("--manifest", input.manifest or None),
            manifest_root=lambda wildcards, m=_model.name: given(
                "--manifest-root", CONFIG.manifest(cell_of(wildcards, m))[1]
            ),
            limit=given("--limit", CONFIG.limit),
            shard=lambda wildcards, m=_model: given(
                "--shard", f"{wildcards.shard}-of-{m.shards}" if m.shards > 1 else None
            ),
            partial="--partial" if _model.partial else "",
            # Asking for `output` keeps Snakemake from tracking the value: what cannot change a prediction reruns nothing.
            execution=lambda wildcards, output, m=_model: canonical_json(m.execution),
            store=lambda wildcards, m=_model.name: paths.STORE.format(model=m, benchmark=wildcards.benchmark),
        shell:
            "python -m reftables.stages.infer --model {params.model:q} --benchmark {wildcards.benchmark:q}"
            " --split {wildcards.split:q} --task {params.task:q} --identity {params.identity:q}"
            " --execution {params.execution:q} --format {params.form:q} --requests {input.requests:q}"
            " {params.truth} {params.manifest} {params.manifest_root} {params.limit} {params.shard}"
            " {params.partial} --store {params.store:q} --predictions {output:q} > {log:q} 2>&1"
