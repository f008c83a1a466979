"""Operands of GEMMs: their addresses in memory, and their scales."""
