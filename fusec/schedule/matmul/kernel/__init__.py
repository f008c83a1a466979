"""The statements of matrix product kernels."""
