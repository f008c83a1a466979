"""Layer norm over the last axis."""

from fusec import DataType, FusionDefinition

with FusionDefinition("layernorm") as fd:
    B = fd.define_dim("B", 4096)  # a symbol and its default size
    H = fd.define_dim("H", 8192, multiple_of=8)
    x = fd.define_tensor(shape=[B, H], contiguity=True, dtype=DataType.BFloat16)
    w = fd.define_tensor(shape=[H], contiguity=True, dtype=DataType.BFloat16)
    b = fd.define_tensor(shape=[H], contiguity=True, dtype=DataType.BFloat16, range=(-1, 1))
    eps = fd.define_scalar(dtype=DataType.Float, default=1e-5)

    xf = fd.ops.cast(x, dtype=DataType.Float)
    var, mean = fd.ops.var_mean(xf, dims=[1], correction=0, keepdim=True)
    rstd = fd.ops.rsqrt(var + eps)
    xn = (xf - mean) * rstd
    y = fd.ops.cast(xn * w + b, dtype=DataType.BFloat16)
    fd.add_output(y)
