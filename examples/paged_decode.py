"""One query of each sequence over keys and values in pages, as far as each sequence is long."""

from fusec import DataType, FusionDefinition

with FusionDefinition("paged_decode") as fd:
    B = fd.define_dim("B", 4)  # sequences
    P = fd.define_dim("P", 256)  # pages of all sequences, 16 positions each
    # Four heads of queries for each of four heads of keys.
    q = fd.define_tensor(shape=[B, 4, 4, 128], contiguity=True, dtype=DataType.BFloat16)
    k_pages = fd.define_tensor(shape=[P, 16, 4, 128], contiguity=True, dtype=DataType.BFloat16)
    v_pages = fd.define_tensor(shape=[P, 16, 4, 128], contiguity=True, dtype=DataType.BFloat16)
    table = fd.define_tensor(shape=[B, 64], contiguity=True, dtype=DataType.Int32, range=(0, 255))
    lengths = fd.define_tensor(shape=[B], contiguity=True, dtype=DataType.Int32, range=(1, 1024))

    pages = fd.ops.reshape(table, [B * 64])
    k = fd.ops.reshape(fd.ops.index_select(k_pages, pages, 0), [B, 1024, 4, 128])
    v = fd.ops.reshape(fd.ops.index_select(v_pages, pages, 0), [B, 1024, 4, 128])
    product = fd.ops.matmul(q, fd.ops.permute(k, [0, 2, 3, 1]))
    scores = fd.ops.mul(fd.ops.cast(product, DataType.Float), 0.08838834764831845)
    position = fd.ops.iota(1024, dtype=DataType.Int32)
    position = fd.ops.broadcast(position, [True, True, True, False])
    seen = fd.ops.lt(position, fd.ops.broadcast(lengths, [False, True, True, True]))
    masked = fd.ops.where(seen, scores, float("-inf"))
    p = fd.ops.cast(fd.ops.softmax(masked, -1), DataType.BFloat16)
    o = fd.ops.matmul(p, fd.ops.permute(v, [0, 2, 1, 3]))
    y = fd.ops.reshape(o, [B, 2048])
    fd.add_output(y)
