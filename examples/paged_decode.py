"""One query of each sequence over keys and values in pages, as far as each sequence is long."""

from fusec import DataType, FusionDefinition

with FusionDefinition("paged_decode") as fd:
    B = fd.define_dim("B", 4)  # sequences
    # Four heads of queries for each of two heads of keys.
    q = fd.define_tensor(shape=[B, 2, 4, 128], contiguity=True, dtype=DataType.BFloat16)
    # Pages of all sequences, 16 positions each.
    k_pages = fd.define_tensor(shape=[128, 16, 2, 128], contiguity=True, dtype=DataType.BFloat16)
    v_pages = fd.define_tensor(shape=[128, 16, 2, 128], contiguity=True, dtype=DataType.BFloat16)
    table = fd.define_tensor(shape=[B, 32], contiguity=True, dtype=DataType.Int32, range=(0, 127))
    lengths = fd.define_tensor(shape=[B], contiguity=True, dtype=DataType.Int32, range=(1, 512))

    pages = fd.ops.reshape(table, [B * 32])
    k = fd.ops.reshape(fd.ops.index_select(k_pages, pages, 0), [B, 512, 2, 128])
    v = fd.ops.reshape(fd.ops.index_select(v_pages, pages, 0), [B, 512, 2, 128])
    product = fd.ops.matmul(q, fd.ops.permute(k, [0, 2, 3, 1]))
    scores = fd.ops.mul(fd.ops.cast(product, DataType.Float), 0.08838834764831845)
    position = fd.ops.iota(512, dtype=DataType.Int32)
    position = fd.ops.broadcast(position, [True, True, True, False])
    seen = fd.ops.lt(position, fd.ops.broadcast(lengths, [False, True, True, True]))
    masked = fd.ops.where(seen, scores, float("-inf"))
    p = fd.ops.cast(fd.ops.softmax(masked, -1), DataType.BFloat16)
    o = fd.ops.matmul(p, fd.ops.permute(v, [0, 2, 1, 3]))
    y = fd.ops.reshape(o, [B, 1024])
    fd.add_output(y)
