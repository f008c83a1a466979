"""Batch norm over N, H and W of an NCHW tensor, with the statistics of the batch."""

from fusec import DataType, FusionDefinition

with FusionDefinition("batchnorm") as fd:
    N, C = fd.define_dim("N", 32), fd.define_dim("C", 64)
    H, W = fd.define_dim("H", 56), fd.define_dim("W", 56)
    x = fd.define_tensor(shape=[N, C, H, W], contiguity=True, dtype=DataType.Half)
    w = fd.define_tensor(shape=[C], contiguity=True, dtype=DataType.Float)
    b = fd.define_tensor(shape=[C], contiguity=True, dtype=DataType.Float)
    eps = fd.define_scalar(dtype=DataType.Float, default=1e-5)

    xf = fd.ops.cast(x, dtype=DataType.Float)
    var, mean = fd.ops.var_mean(xf, dims=[0, 2, 3], correction=0)
    rstd = fd.ops.rsqrt(var + eps)
    # One value per channel becomes [1, C, 1, 1].
    channel = [True, False, True, True]
    mean_c = fd.ops.broadcast(mean, channel)
    rstd_c = fd.ops.broadcast(rstd, channel)
    w_c = fd.ops.broadcast(w, channel)
    b_c = fd.ops.broadcast(b, channel)
    y = fd.ops.cast((xf - mean_c) * rstd_c * w_c + b_c, dtype=DataType.Half)
    fd.add_output(y)
    fd.add_output(mean)  # the statistics are kept for the backward pass
    fd.add_output(rstd)
