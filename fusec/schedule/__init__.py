"""Schedulers: each predicts a segment's cost or refuses it, and builds its plan and kernels."""
