"""Where everything lies, relative to the working directory. Braces are Snakemake's wildcards."""

TRUTH = "results/truth/{benchmark}/{split}.jsonl"
NOTES = "results/truth/{benchmark}/{split}.notes.json"
REQUESTS = "results/requests/{benchmark}/{split}.{prompt}.locout"
MANIFEST = "results/manifests/{benchmark}/{split}.tsv"
PREDICTIONS = "results/predictions/{model}/{benchmark}/{split}.jsonl"
SHARD = "results/shards/{model}/{benchmark}/{split}.{shard}-of-{shards}.jsonl"  # of a prediction file, until gathered
FAIRSEQ_LOG = "results/predictions/{model}/{benchmark}/{split}.fairseq.out"
METRICS = "results/metrics/{model}/{benchmark}/{split}.json"
SAMPLES = "results/samples/{model}/{benchmark}/{split}.csv"
STORE = "results/store/{model}/{benchmark}"
EXPECTED = "results/expected.json"
CONFIG = "results/config.json"  # the whole configuration, as it is run
ANALYSIS = "results/analysis.json"
COMPARISONS = "results/comparisons.csv"
COMPARISON = "results/comparisons/{first}.vs.{second}.csv"
BREAKDOWNS = "results/breakdowns.csv"
TABLES_MD = "results/tables.md"
TABLES_CSV = "results/tables.csv"
TABLE = "results/tables/{table}.csv"
INDEX = "results/index.html"
TABLES_TEX = "results/tables.tex"
PROVENANCE = "results/provenance.json"
GALLERY = "results/gallery/{model}/{benchmark}/{split}.html"
GALLERY_INDEX = "results/gallery/index.html"
GALLERY_SCRIPT = "results/gallery/gallery.js"
THUMBNAILS = "results/gallery/thumbnails"
DIGESTS = ".snakemake/reftables-digests.json"
LEDGER = "resources/digests.tsv"


def fill(template: str, **names: str) -> str:
    """Replace exactly the names given, as `{benchmark}`, `{split}` or `{model}`; other braces stay."""
    for name, value in names.items():
        template = template.replace(f"{{{name}}}", value)
    return template
