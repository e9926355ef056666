"""reftables: the evaluation tables of visual-grounding papers, ours beside the published.

Read in this order: config/config.yaml (what is run), workflow/rules/common.smk (what every rule
shares), then the rules in the order of the data: sample, download, convert, infer, gather, fairseq,
score, analyse, tables, gallery.
"""

from snakemake.utils import min_version

min_version("9.27")


configfile: workflow.source_path("config/config.yaml")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/sample.smk"
include: "workflow/rules/download.smk"
include: "workflow/rules/convert.smk"
include: "workflow/rules/infer.smk"
include: "workflow/rules/gather.smk"
include: "workflow/rules/fairseq.smk"
include: "workflow/rules/score.smk"
include: "workflow/rules/analyse.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/gallery.smk"
include: "workflow/rules/plan.smk"


onstart:
    # Not earlier: only now Snakemake has told where the jobs are to run.
    if not workflow.local_exec:
        refuse_shell_code()


localrules:
    all,
    plan,
    data,
    sample,
    truth,
    requests,
    manifest,
    gather,
    fairseq,
    score,
    analyse,
    tables,
    gallery_page,
    gallery,


rule all:
    default_target: True
    input:
        rules.tables.output,
