"""Reductions whose input is read once."""
