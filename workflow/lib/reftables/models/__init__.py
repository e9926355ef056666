"""Model backends: requests to predictions, one module a backend."""

BACKENDS = ("baselines", "clipseg", "colour_rules", "gemini", "kosmos2", "openai", "recorded", "roborefer", "vlm")
