"""Causal attention of grouped heads, with the log of the softmax's sums."""

from fusec import DataType, FusionDefinition

with FusionDefinition("attention") as fd:
    B = fd.define_dim("B", 2)
    S = fd.define_dim("S", 1024, multiple_of=8)  # queries, and keys
    # Heads lie beside each other; four of them share keys and values.
    q = fd.define_tensor(shape=[B, S, 16, 128], contiguity=True, dtype=DataType.BFloat16)
    k = fd.define_tensor(shape=[B, S, 4, 128], contiguity=True, dtype=DataType.BFloat16)
    v = fd.define_tensor(shape=[B, S, 4, 128], contiguity=True, dtype=DataType.BFloat16)

    qh = fd.ops.permute(q, [0, 2, 1, 3])
    kg = fd.ops.broadcast(fd.ops.permute(k, [0, 2, 1, 3]), [False, False, True, False, False])
    vg = fd.ops.broadcast(fd.ops.permute(v, [0, 2, 1, 3]), [False, False, True, False, False])
    kh = fd.ops.reshape(fd.ops.expand(kg, [B, 4, 4, S, 128]), [B, 16, S, 128])
    vh = fd.ops.reshape(fd.ops.expand(vg, [B, 4, 4, S, 128]), [B, 16, S, 128])
    o, lse, _, _ = fd.ops.sdpfa_fwd(qh, kh, vh, is_causal=True)
    y = fd.ops.reshape(fd.ops.permute(o, [0, 2, 1, 3]), [B, S, 2048])
    fd.add_output(y)
    fd.add_output(lse)
