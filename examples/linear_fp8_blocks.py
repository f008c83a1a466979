"""A linear layer of 8-bit floats, with a scale for each block of x and of w."""

from fusec import DataType, FusionDefinition

with FusionDefinition("linear_fp8_blocks") as fd:
    x = fd.define_tensor(shape=[128, 1024], contiguity=True, dtype=DataType.Float8_e4m3fn)
    w = fd.define_tensor(shape=[512, 1024], contiguity=True, dtype=DataType.Float8_e4m3fn)
    x_scale = fd.define_tensor(shape=[128, 8], contiguity=True, dtype=DataType.Float)
    w_scale = fd.define_tensor(shape=[4, 8], contiguity=True, dtype=DataType.Float)

    x_blocks = fd.ops.reshape(fd.ops.cast(x, DataType.Float), [128, 8, 128])
    w_blocks = fd.ops.reshape(fd.ops.cast(w, DataType.Float), [4, 128, 8, 128])
    x_scaled = fd.ops.mul(x_blocks, fd.ops.broadcast(x_scale, [False, False, True]))
    w_scaled = fd.ops.mul(w_blocks, fd.ops.broadcast(w_scale, [False, True, False, True]))
    p = fd.ops.linear(fd.ops.reshape(x_scaled, [128, 1024]), fd.ops.reshape(w_scaled, [512, 1024]))
    y = fd.ops.cast(p, DataType.BFloat16)
    fd.add_output(y)
