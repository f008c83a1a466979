"""A linear layer of floats with SiLU, of whose factors 10 bits behind the point count."""

from fusec import DataType, FusionDefinition

with FusionDefinition("linear_tf32") as fd:
    M = fd.define_dim("M", 1024)
    N = fd.define_dim("N", 1024, multiple_of=4)
    K = fd.define_dim("K", 1024, multiple_of=4)
    x = fd.define_tensor(shape=[M, K], contiguity=True, dtype=DataType.Float)
    # As in PyTorch: one row per output feature.
    w = fd.define_tensor(shape=[N, K], contiguity=True, dtype=DataType.Float)
    bias = fd.define_tensor(shape=[N], contiguity=True, dtype=DataType.Float)

    y = fd.ops.silu(fd.ops.linear(fd.ops.tf32(x), fd.ops.tf32(w), bias))
    fd.add_output(y)
