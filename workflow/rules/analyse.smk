"""Compare models sample by sample, and break their scores down by properties of the samples.

IN   results/expected.json, results/metrics/{model}/{benchmark}/{split}.json,
     results/samples/{model}/{benchmark}/{split}.csv, results/truth/{benchmark}/{split}.jsonl
OUT  results/analysis.json, results/comparisons.csv, results/breakdowns.csv,
     results/comparisons/{first}.vs.{second}.csv (the samples at which a configured pair of models differs)
"""


rule analyse:
    input:
        expected=paths.EXPECTED,
        metrics=[cell["metrics"] for cell in EXPECTED["cells"]],
        samples=[paths.SAMPLES.format(**cell) for cell in EXPECTED["cells"]],
        truth=sorted({paths.TRUTH.format(**cell) for cell in EXPECTED["cells"]}),
    output:
        analysis=paths.ANALYSIS,
        comparisons=report(paths.COMPARISONS, caption="../report/comparisons.rst", category="Comparisons"),
        breakdowns=report(paths.BREAKDOWNS, caption="../report/breakdowns.rst", category="Comparisons"),
        lists=report(
            [paths.COMPARISON.format(first=first, second=second) for first, second in EXPECTED["comparisons"]],
            caption="../report/differences.rst",
            category="Comparisons",
        ),
    log:
        "results/logs/analyse.log",
    benchmark:
        "results/timings/analyse.tsv"
    conda:
        "../../envs/core.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        lineage=code("stages.analyse"),
    shell:
        "python -m reftables.stages.analyse --expected {input.expected:q} --results results > {log:q} 2>&1"
