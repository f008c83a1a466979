"""Instructions of kernels by class and loop level, and the cost of device functions."""
