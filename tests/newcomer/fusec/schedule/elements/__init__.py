"""Elementwise kernels with one element per thread and turn."""
