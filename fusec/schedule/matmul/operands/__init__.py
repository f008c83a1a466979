"""Operands of matrix products: where they lie in memory, and what scales them."""
