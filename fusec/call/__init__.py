"""Callable compiled fusions: accept arrays of any framework, return outputs of the same."""
