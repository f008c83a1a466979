"""Scale every row to the range of fp8 and keep the scales."""

from fusec import DataType, FusionDefinition

with FusionDefinition("quantize_fp8_rows") as fd:
    T = fd.define_dim("T", 4096)  # tokens
    H = fd.define_dim("H", 4096, multiple_of=16)  # features
    x = fd.define_tensor(shape=[T, H], contiguity=True, dtype=DataType.BFloat16)

    xf = fd.ops.cast(x, DataType.Float)
    amax = fd.ops.max(fd.ops.abs(xf), 1, keepdim=True)
    # The largest value becomes the largest of f8e4m3; a row of zeros keeps a scale above 0.
    scale = fd.ops.div(fd.ops.maximum(amax, 1e-12), 448.0)
    # The cast rounds to nearest even and saturates.
    q = fd.ops.cast(fd.ops.div(xf, scale), DataType.Float8_e4m3fn)
    fd.add_output(q)
    fd.add_output(scale)
