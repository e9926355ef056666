"""Model backends: requests to predictions, one module a backend."""

BACKENDS = ("baselines", "colour_rules", "gemini", "openai", "recorded", "roborefer")
