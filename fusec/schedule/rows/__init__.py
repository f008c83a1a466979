"""Kernels over rows or columns: reductions, and rows or columns that stay on chip."""
