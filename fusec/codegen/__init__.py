"""CUDA text: one frozen view per template, rendering."""
