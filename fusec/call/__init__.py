"""Compiled fusions that are called: arrays of any framework in, outputs of their kind out."""
