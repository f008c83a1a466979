"""Llama's MLP, its weights divided over the ranks."""

from fusec import DataType, FusionDefinition

with FusionDefinition("tensor_parallel_mlp") as fd:
    T = fd.define_dim("T", 8192)  # tokens
    D = fd.define_dim("D", 8192)
    F = fd.define_dim("F", 28672)  # features of the hidden layer
    x = fd.define_tensor(shape=[T, D], contiguity=True, dtype=DataType.BFloat16)
    gate = fd.define_tensor(shape=[F, D], contiguity=True, dtype=DataType.BFloat16)
    up = fd.define_tensor(shape=[F, D], contiguity=True, dtype=DataType.BFloat16)
    down = fd.define_tensor(shape=[D, F], contiguity=True, dtype=DataType.BFloat16)

    g = fd.ops.linear(x, gate)
    u = fd.ops.linear(x, up)
    h = fd.ops.cast(fd.ops.silu(fd.ops.cast(g, DataType.Float)) * u, DataType.BFloat16)
    y = fd.ops.linear(h, down)
    fd.add_output(y)

    fd.set_mesh({"tp": 4})
    fd.shard(x, {})  # every rank has the whole
    fd.shard(gate, {0: "tp"})
    fd.shard(up, {0: "tp"})
    fd.shard(down, {1: "tp"})
    fd.shard(y, {})
