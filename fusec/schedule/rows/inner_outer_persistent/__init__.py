"""Rows and columns reduced in one pass."""
