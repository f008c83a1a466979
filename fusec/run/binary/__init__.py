"""Compilation of CUDA source with NVRTC, and inspection of the machine code."""
