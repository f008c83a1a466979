"""A matrix transposed and scaled in one pass."""

from fusec import DataType, FusionDefinition

with FusionDefinition("transpose") as fd:
    M, N = fd.define_dim("M", 2048), fd.define_dim("N", 4096)
    x = fd.define_tensor(shape=[M, N], contiguity=True, dtype=DataType.BFloat16)
    scale = fd.define_scalar(dtype=DataType.Float, default=0.125)

    xt = fd.ops.cast(fd.ops.permute(x, [1, 0]), dtype=DataType.Float)
    y = fd.ops.cast(xt * scale, dtype=DataType.BFloat16)
    fd.add_output(y)
