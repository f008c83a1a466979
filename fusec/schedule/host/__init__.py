"""What the host does between kernels: collectives, placement, segments without kernels."""
