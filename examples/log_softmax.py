"""Log-softmax over the last axis."""

from fusec import DataType, FusionDefinition

with FusionDefinition("log_softmax") as fd:
    B = fd.define_dim("B", 2048)
    H = fd.define_dim("H", 4096)
    x = fd.define_tensor(shape=[B, H], contiguity=True, dtype=DataType.Float)

    y = fd.ops.log_softmax(x, -1)
    fd.add_output(y)
