"""Building and running: NVRTC, the kernel cache, execution.

Nothing here imports a CUDA package before it is used.
"""
