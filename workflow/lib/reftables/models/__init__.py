"""Model backends: requests to predictions, one module a backend."""
