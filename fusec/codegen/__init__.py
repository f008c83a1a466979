"""CUDA text: expressions, names, one frozen view per template, rendering."""
