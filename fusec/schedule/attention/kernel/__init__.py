"""The statements of attention kernels."""
