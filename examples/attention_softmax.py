"""Softmax of scaled attention scores with an additive bias and a mask of keys."""

from fusec import DataType, FusionDefinition

with FusionDefinition("attention_softmax") as fd:
    B = fd.define_dim("B", 2)
    NH = fd.define_dim("NH", 8)  # heads
    Q = fd.define_dim("Q", 512)  # queries
    K = fd.define_dim("K", 1024, multiple_of=8)  # keys
    scores = fd.define_tensor(shape=[B, NH, Q, K], contiguity=True, dtype=DataType.BFloat16)
    bias = fd.define_tensor(shape=[NH, Q, K], contiguity=True, dtype=DataType.BFloat16)
    keep = fd.define_tensor(shape=[B, K], contiguity=True, dtype=DataType.Bool)
    scale = fd.define_scalar(dtype=DataType.Float, default=0.125)

    scaled = fd.ops.cast(scores, DataType.Float) * scale + fd.ops.cast(bias, DataType.Float)
    keep_all = fd.ops.broadcast(keep, [False, True, True, False])
    # A large negative number, not -inf: a row without keys stays finite.
    s = fd.ops.where(keep_all, scaled, -1e9)
    y = fd.ops.cast(fd.ops.softmax(s, -1), DataType.BFloat16)
    fd.add_output(y)
