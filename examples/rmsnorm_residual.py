"""Adds the residual stream, in place, and normalises the sum by its root mean square."""

from fusec import DataType, FusionDefinition

with FusionDefinition("rmsnorm_residual") as fd:
    T = fd.define_dim("T", 2048)  # tokens
    H = fd.define_dim("H", 4096, multiple_of=8)
    x = fd.define_tensor(shape=[T, H], contiguity=True, dtype=DataType.BFloat16)
    residual = fd.define_tensor(shape=[T, H], contiguity=True, dtype=DataType.BFloat16)
    w = fd.define_tensor(shape=[H], contiguity=True, dtype=DataType.BFloat16)
    eps = fd.define_scalar(dtype=DataType.Float, default=1e-6)

    h = fd.ops.cast(x, DataType.Float) + fd.ops.cast(residual, DataType.Float)
    sum_out = fd.ops.cast(h, DataType.BFloat16)
    mean_square = fd.ops.mean(h * h, dims=[1], keepdim=True)
    normal = h * fd.ops.rsqrt(mean_square + eps)
    y = fd.ops.cast(normal * fd.ops.cast(w, DataType.Float), DataType.BFloat16)
    fd.add_output(y)
    fd.add_output(sum_out, alias_input=residual)  # the sum replaces the residual
