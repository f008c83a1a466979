"""CUDA text to machine code through NVRTC, and what machine code says."""
