"""Fusion files that are timed, and what PyTorch has for them."""
