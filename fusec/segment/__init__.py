"""Segmentation: decides which nodes share a kernel."""
