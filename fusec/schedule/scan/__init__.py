"""Scans along one axis."""
