"""Scatters."""
