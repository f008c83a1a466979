"""Expected errors of the results of operations."""
