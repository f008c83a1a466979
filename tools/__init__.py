"""Tools for those who work on fusec: random fusions, what becomes of them, and small failures."""
