"""fusec compiles fusion definitions into readable CUDA kernels."""

__version__ = "0.1.0"
