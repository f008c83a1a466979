"""CUDA source: one frozen view per template, rendering."""
