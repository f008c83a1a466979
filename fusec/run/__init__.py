"""Builds and runs programs: NVRTC, the kernel cache, execution.

Nothing here imports a CUDA package before it is used.
"""
