"""Building and running: NVRTC, the cache of built kernels, execution.

Nothing here imports a CUDA package before it is used.
"""
