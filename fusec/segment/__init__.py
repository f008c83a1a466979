"""Segmentation: which nodes share a kernel."""
