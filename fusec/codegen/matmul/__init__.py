"""The views of the GEMM templates."""
