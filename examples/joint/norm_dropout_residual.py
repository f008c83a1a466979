"""Layer norm of a residual sum after dropout, with its backward pass."""

from fusec import DataType, FusionDefinition

with FusionDefinition("norm_dropout_residual") as fd:
    B = fd.define_dim("B", 2048)
    H = fd.define_dim("H", 4096, multiple_of=8)
    x = fd.define_tensor(shape=[B, H], contiguity=True, dtype=DataType.BFloat16)
    r = fd.define_tensor(shape=[B, H], contiguity=True, dtype=DataType.BFloat16)
    w = fd.define_tensor(shape=[H], contiguity=True, dtype=DataType.BFloat16)
    b = fd.define_tensor(shape=[H], contiguity=True, dtype=DataType.BFloat16)

    keep = fd.ops.uniform(0.0, 1.0, [B, H], dtype=DataType.Float) < 0.9
    dropped = fd.ops.where(keep, fd.ops.div(fd.ops.cast(x, DataType.Float), 0.9), 0.0)
    s = dropped + fd.ops.cast(r, DataType.Float)
    var, mean = fd.ops.var_mean(s, dims=[1], correction=0, keepdim=True)
    rstd = fd.ops.rsqrt(var + 1e-5)
    xn = (s - mean) * rstd
    y = xn * fd.ops.cast(w, DataType.Float) + fd.ops.cast(b, DataType.Float)
    fd.add_output(fd.ops.cast(y, DataType.BFloat16))

    # What the backward pass needs of the above is saved, or computed again: fusec decides.
    fd.phase_boundary()
    dy = fd.define_tensor(shape=[B, H], contiguity=True, dtype=DataType.BFloat16)

    dyf = fd.ops.cast(dy, DataType.Float)
    dxn = dyf * fd.ops.cast(w, DataType.Float)
    m1 = fd.ops.mean(dxn * xn, dims=[1], keepdim=True)
    m2 = fd.ops.mean(dxn, dims=[1], keepdim=True)
    ds = (dxn - (xn * m1 + m2)) * rstd
    dr = fd.ops.cast(ds, DataType.BFloat16)
    fd.add_output(fd.ops.cast(fd.ops.where(keep, fd.ops.div(ds, 0.9), 0.0), DataType.BFloat16))
    fd.add_output(dr)
    fd.add_output(fd.ops.cast(fd.ops.sum(dyf * xn, dims=[0]), DataType.BFloat16))
    fd.add_output(fd.ops.cast(fd.ops.sum(dyf, dims=[0]), DataType.BFloat16))
