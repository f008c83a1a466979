"""The host's work between kernels: collectives, placement, and segments without kernels."""
