"""Gradients of layer norm with respect to its input, weight and bias."""

from fusec import DataType, FusionDefinition

with FusionDefinition("layernorm_backward") as fd:
    B = fd.define_dim("B", 2048)
    H = fd.define_dim("H", 4096, multiple_of=8)
    dy = fd.define_tensor(shape=[B, H], contiguity=True, dtype=DataType.BFloat16)
    x = fd.define_tensor(shape=[B, H], contiguity=True, dtype=DataType.BFloat16)
    w = fd.define_tensor(shape=[H], contiguity=True, dtype=DataType.BFloat16)
    # The statistics that the forward pass kept.
    mean = fd.define_tensor(shape=[B], contiguity=True, dtype=DataType.Float)
    rstd = fd.define_tensor(shape=[B], contiguity=True, dtype=DataType.Float, range=(0.5, 2))

    dyf = fd.ops.cast(dy, DataType.Float)
    rstd_col = fd.ops.broadcast(rstd, [False, True])
    xn = (fd.ops.cast(x, DataType.Float) - fd.ops.broadcast(mean, [False, True])) * rstd_col
    # Two sums along each row ...
    dxn = dyf * fd.ops.cast(w, DataType.Float)
    along_xn = fd.ops.mean(dxn * xn, dims=[1], keepdim=True)
    along_one = fd.ops.mean(dxn, dims=[1], keepdim=True)
    dx = fd.ops.cast((dxn - (xn * along_xn + along_one)) * rstd_col, DataType.BFloat16)
    # ... and two down the columns, of the same data.
    dw = fd.ops.cast(fd.ops.sum(dyf * xn, dims=[0]), DataType.BFloat16)
    db = fd.ops.cast(fd.ops.sum(dyf, dims=[0]), DataType.BFloat16)
    fd.add_output(dx)
    fd.add_output(dw)
    fd.add_output(db)
