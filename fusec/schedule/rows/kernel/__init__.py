"""The statements of kernels over rows or columns."""
