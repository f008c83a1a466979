"""Instructions of kernels by class and loop level, and what device functions cost."""
