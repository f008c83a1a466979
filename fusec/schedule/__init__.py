"""Schedulers: each prices a segment, or refuses it, and builds its plan and its kernels."""
