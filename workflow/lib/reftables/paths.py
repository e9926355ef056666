"""Where everything lies, relative to the working directory. Braces are Snakemake's wildcards."""

TRUTH = "results/truth/{benchmark}/{split}.jsonl"
NOTES = "results/truth/{benchmark}/{split}.notes.json"
REQUESTS = "results/requests/{benchmark}/{split}.{prompt}.locout"
MANIFEST = "results/manifests/{benchmark}/{split}.tsv"
PREDICTIONS = "results/predictions/{model}/{benchmark}/{split}.jsonl"
METRICS = "results/metrics/{model}/{benchmark}/{split}.json"
SAMPLES = "results/samples/{model}/{benchmark}/{split}.csv"
STORE = "results/store/{model}/{benchmark}"
EXPECTED = "results/expected.json"
TABLES_MD = "results/tables.md"
TABLES_CSV = "results/tables.csv"
TABLE = "results/tables/{table}.csv"
INDEX = "results/index.html"
DIGESTS = ".snakemake/reftables-digests.json"


def fill(template: str, **names: str) -> str:
    """Replace exactly the names given, as `{benchmark}`, `{split}` or `{model}`; other braces stay."""
    for name, value in names.items():
        template = template.replace(f"{{{name}}}", value)
    return template
