"""A linear layer of a few tokens that are normalised by known statistics, in one kernel."""

from fusec import DataType, FusionDefinition

with FusionDefinition("linear_normalised") as fd:
    M = fd.define_dim("M", 16)  # tokens that are decoded at once
    N = fd.define_dim("N", 1024)
    K = fd.define_dim("K", 1024)
    x = fd.define_tensor(shape=[M, K], contiguity=True, dtype=DataType.BFloat16)
    # Of each row, from the kernel that has made x.
    mean = fd.define_tensor(shape=[M, 1], contiguity=True)
    rstd = fd.define_tensor(shape=[M, 1], contiguity=True)
    gamma = fd.define_tensor(shape=[K], contiguity=True, dtype=DataType.BFloat16)
    beta = fd.define_tensor(shape=[K], contiguity=True, dtype=DataType.BFloat16)
    w = fd.define_tensor(shape=[N, K], contiguity=True, dtype=DataType.BFloat16)

    wide = fd.ops.cast(x, DataType.Float)
    deviation = fd.ops.sub(wide, mean)
    unit = fd.ops.mul(deviation, rstd)
    factor = fd.ops.broadcast_in_dim(fd.ops.cast(gamma, DataType.Float), [M, K], [1])
    scaled = fd.ops.mul(unit, factor)
    offset = fd.ops.broadcast_in_dim(fd.ops.cast(beta, DataType.Float), [M, K], [1])
    shifted = fd.ops.add(scaled, offset)
    normalised = fd.ops.cast(shifted, DataType.BFloat16)
    y = fd.ops.linear(normalised, w)
    fd.pin(
        "product",
        [wide, deviation, unit, factor, scaled, offset, shifted, normalised, y],
        scheduler="matmul",
    )
    fd.add_output(y)
