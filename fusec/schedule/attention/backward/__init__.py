"""Attention's backward pass: five GEMMs in two kernels."""
