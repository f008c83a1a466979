"""Rotary position embedding of queries, halves rotated as in LLaMA."""

from fusec import DataType, FusionDefinition

with FusionDefinition("rope") as fd:
    B = fd.define_dim("B", 2)
    NH = fd.define_dim("NH", 16)  # heads
    S = fd.define_dim("S", 1024)  # positions
    D2 = fd.define_dim("D2", 64, multiple_of=8)  # half of a head
    D = 2 * D2
    q = fd.define_tensor(shape=[B, NH, S, D], contiguity=True, dtype=DataType.BFloat16)
    cos = fd.define_tensor(shape=[S, D], contiguity=True, dtype=DataType.BFloat16)
    sin = fd.define_tensor(shape=[S, D], contiguity=True, dtype=DataType.BFloat16)

    qf = fd.ops.cast(q, dtype=DataType.Float)
    q1 = fd.ops.slice(qf, start_indices=[0, 0, 0, 0], end_indices=[B, NH, S, D2])
    q2 = fd.ops.slice(qf, start_indices=[0, 0, 0, D2], end_indices=[B, NH, S, D])
    rotated = fd.ops.cat([-q2, q1], dim=3)
    straight = qf * fd.ops.cast(cos, dtype=DataType.Float)
    turned = rotated * fd.ops.cast(sin, dtype=DataType.Float)
    y = fd.ops.cast(straight + turned, dtype=DataType.BFloat16)
    fd.add_output(y)
