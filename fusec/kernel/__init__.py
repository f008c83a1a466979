"""The kernel IR: statements and expressions of a kernel, and the lowering of values to them."""
