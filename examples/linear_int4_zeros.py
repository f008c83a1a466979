"""A linear layer with weights of four bits along N, and scales and zero points of 64 of them."""

from fusec import DataType, FusionDefinition

with FusionDefinition("linear_int4_zeros") as fd:
    M = fd.define_dim("M", 4)
    x = fd.define_tensor(shape=[M, 1024], contiguity=True, dtype=DataType.BFloat16)
    # Two columns a byte, the first in the low bits; zero points and scales of 64 weights along K.
    w = fd.define_tensor(shape=[1024, 256], contiguity=True, dtype=DataType.Byte)
    zero = fd.define_tensor(shape=[16, 256], contiguity=True, dtype=DataType.Byte)
    scale = fd.define_tensor(shape=[16, 512], contiguity=True, dtype=DataType.BFloat16)

    w_low = fd.ops.broadcast(fd.ops.bitwise_and(w, 15), [False, False, True])
    w_high = fd.ops.broadcast(fd.ops.bitwise_right_shift(w, 4), [False, False, True])
    w_pairs = fd.ops.cast(fd.ops.cat([w_low, w_high], dim=2), DataType.Int32)
    q = fd.ops.reshape(w_pairs, [16, 64, 512])
    z_low = fd.ops.broadcast(fd.ops.bitwise_and(zero, 15), [False, False, True])
    z_high = fd.ops.broadcast(fd.ops.bitwise_right_shift(zero, 4), [False, False, True])
    z_pairs = fd.ops.cast(fd.ops.cat([z_low, z_high], dim=2), DataType.Int32)
    z = fd.ops.broadcast(fd.ops.reshape(z_pairs, [16, 512]), [False, True, False])
    centred = fd.ops.cast(fd.ops.sub(q, z), DataType.BFloat16)
    weights = fd.ops.mul(centred, fd.ops.broadcast(scale, [False, True, False]))
    y = fd.ops.matmul(x, fd.ops.reshape(weights, [1024, 512]))
    fd.add_output(y)
