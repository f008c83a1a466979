"""The gradient at a linear layer with bias and SiLU, from that of the layer behind it."""

from fusec import DataType, FusionDefinition

with FusionDefinition("linear_silu_backward") as fd:
    M = fd.define_dim("M", 1024)
    N = fd.define_dim("N", 1024, multiple_of=8)
    K = fd.define_dim("K", 1024, multiple_of=8)
    dy = fd.define_tensor(shape=[M, K], contiguity=True, dtype=DataType.BFloat16)
    # Of the layer behind: one row per output feature.
    w = fd.define_tensor(shape=[K, N], contiguity=True, dtype=DataType.BFloat16)
    # What SiLU was computed from.
    z = fd.define_tensor(shape=[M, N], contiguity=True, dtype=DataType.BFloat16)

    da = fd.ops.cast(fd.ops.matmul(dy, w), dtype=DataType.Float)
    zf = fd.ops.cast(z, dtype=DataType.Float)
    s = fd.ops.sigmoid(zf)
    dz = fd.ops.cast(da * (s * (1.0 + zf * (1.0 - s))), dtype=DataType.BFloat16)
    dbias = fd.ops.sum(fd.ops.cast(dz, dtype=DataType.Float), dims=[0])
    fd.add_output(dz)
    fd.add_output(dbias)
