"""Softmax over the last axis, shifted by the maximum of each row."""

from fusec import DataType, FusionDefinition

with FusionDefinition("softmax") as fd:
    B = fd.define_dim("B", 2048)
    H = fd.define_dim("H", 4096, multiple_of=8)
    x = fd.define_tensor(shape=[B, H], contiguity=True, dtype=DataType.BFloat16)

    xf = fd.ops.cast(x, dtype=DataType.Float)
    shifted = xf - fd.ops.max(xf, dims=[1], keepdim=True)
    e = fd.ops.exp(shifted)
    y = fd.ops.cast(fd.ops.div(e, fd.ops.sum(e, dims=[1], keepdim=True)), DataType.BFloat16)
    fd.add_output(y)
