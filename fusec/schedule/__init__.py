"""Schedulers: each proposes a price for a segment, or refuses it, and builds its plan and its kernels."""
