"""A linear layer of a few tokens, with weights of four bits and a scale for each 128 of them."""

from fusec import DataType, FusionDefinition

with FusionDefinition("linear_int4") as fd:
    M = fd.define_dim("M", 4)
    x = fd.define_tensor(shape=[M, 1024], contiguity=True, dtype=DataType.BFloat16)
    # Two weights a byte, the first in the low bits, plus 8; scales of 128 weights along K.
    w = fd.define_tensor(shape=[512, 512], contiguity=True, dtype=DataType.Byte)
    scale = fd.define_tensor(shape=[512, 8], contiguity=True, dtype=DataType.BFloat16)

    low = fd.ops.broadcast(fd.ops.bitwise_and(w, 15), [False, False, True])
    high = fd.ops.broadcast(fd.ops.bitwise_right_shift(w, 4), [False, False, True])
    pairs = fd.ops.cast(fd.ops.cat([low, high], dim=2), DataType.Int32)
    q = fd.ops.cast(fd.ops.sub(pairs, 8), DataType.BFloat16)
    groups = fd.ops.reshape(q, [512, 8, 128])
    grouped = fd.ops.mul(groups, fd.ops.broadcast(scale, [False, False, True]))
    y = fd.ops.linear(x, fd.ops.reshape(grouped, [512, 1024]))
    fd.add_output(y)
