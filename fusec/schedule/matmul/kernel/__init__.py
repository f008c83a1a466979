"""The statements of GEMM kernels."""
