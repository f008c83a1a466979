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

    deviation = fd.ops.sub(fd.ops.cast(x, DataType.Float), mean)
    scaled = fd.ops.mul(fd.ops.mul(deviation, rstd), fd.ops.cast(gamma, DataType.Float))
    shifted = fd.ops.add(scaled, fd.ops.cast(beta, DataType.Float))
    y = fd.ops.linear(fd.ops.cast(shifted, DataType.BFloat16), w)
    fd.add_output(y)
