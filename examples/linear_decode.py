"""A linear layer of the tokens that a model decodes at a time, gated by another one's result."""

from fusec import DataType, FusionDefinition

with FusionDefinition("linear_decode") as fd:
    M = fd.define_dim("M", 4)
    N = fd.define_dim("N", 4096, multiple_of=8)
    K = fd.define_dim("K", 4096, multiple_of=8)
    x = fd.define_tensor(shape=[M, K], contiguity=True, dtype=DataType.BFloat16)
    # As in PyTorch: one row per output feature.
    w = fd.define_tensor(shape=[N, K], contiguity=True, dtype=DataType.BFloat16)
    gate = fd.define_tensor(shape=[M, N], contiguity=True, dtype=DataType.BFloat16)

    y = fd.ops.mul(fd.ops.silu(gate), fd.ops.linear(x, w))
    fd.add_output(y)
