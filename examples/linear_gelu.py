"""A linear layer with bias, and the tanh GELU as its epilogue."""

from fusec import DataType, FusionDefinition

with FusionDefinition("linear_gelu") as fd:
    M = fd.define_dim("M", 512)
    N = fd.define_dim("N", 1024, multiple_of=8)
    K = fd.define_dim("K", 1024, multiple_of=8)
    x = fd.define_tensor(shape=[M, K], contiguity=True, dtype=DataType.BFloat16)
    # As in PyTorch: one row per output feature.
    w = fd.define_tensor(shape=[N, K], contiguity=True, dtype=DataType.BFloat16)
    bias = fd.define_tensor(shape=[N], contiguity=True, dtype=DataType.BFloat16)

    z = fd.ops.cast(fd.ops.linear(x, w, bias), dtype=DataType.Float)
    inner = 0.7978845608028654 * (z + 0.044715 * (z * z * z))
    y = fd.ops.cast((0.5 * z) * (1.0 + fd.ops.tanh(inner)), dtype=DataType.BFloat16)
    fd.add_output(y)
