"""The gated unit of a LLaMA MLP, silu(gate) * up."""

from fusec import DataType, FusionDefinition

with FusionDefinition("swiglu") as fd:
    T = fd.define_dim("T", 2048)  # tokens
    F = fd.define_dim("F", 4096, multiple_of=8)  # features of the hidden layer
    gate = fd.define_tensor(shape=[T, F], contiguity=True, dtype=DataType.BFloat16)
    up = fd.define_tensor(shape=[T, F], contiguity=True, dtype=DataType.BFloat16)

    g = fd.ops.silu(fd.ops.cast(gate, DataType.Float))
    y = fd.ops.cast(g * fd.ops.cast(up, DataType.Float), DataType.BFloat16)
    fd.add_output(y)
