"""How the models that this repository brings along were made."""
