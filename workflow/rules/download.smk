"""Fetch the files that benchmarks and recorded models name: one rule an entry of `downloads`.

OUT  resources/...: the file, or what is unpacked of it, and TARGET.digest (sha256sum's format)
     resources/digests.tsv (appended to, never declared: what was fetched first holds for ever after)

`data` fetches all that the selected benchmarks need and stops there, images included.
"""

for _download in CONFIG.downloads.values():

    rule:
        name:
            f"download_{_download.name}"
        output:
            files=_download.files,
            digest=_download.digest,
        log:
            f"results/logs/download_{_download.name}.log",
        benchmark:
            f"results/timings/download_{_download.name}.tsv"
        localrule: True
        conda:
            "../../envs/core.yaml"
        resources:
            downloads=1,
            mem_mb=500,
            runtime=1440,
        params:
            lineage=canonical_json(_download.known_by(DIGESTS.of)),
            name=_download.name,
            # Asking for `output` keeps Snakemake from tracking the value: another mirror fetches nothing anew.
            entry=lambda wildcards, output, d=_download: canonical_json(asdict(d)),
            ledger=paths.LEDGER,
        shell:
            "python -m reftables.stages.download --name {params.name:q} --entry {params.entry:q}"
            " --ledger {params.ledger:q} --digest {output.digest:q} > {log:q} 2>&1"


rule data:
    input:
        [output for download in CONFIG.downloads_behind(FILES) for output in download.outputs],
        [
            paths.MANIFEST.format(benchmark=benchmark.name, split=split)
            for benchmark in CONFIG.benchmarks.values()
            for split in benchmark.splits
            if CONFIG.images_of(benchmark.image_root(split))
        ],
