"""Model backends: requests to predictions, one module a backend."""

BACKENDS = ("baselines", "colour_rules", "gemini", "kosmos2", "openai", "recorded", "roborefer")
