"""Backward pass of a modulated layer norm, from an nvFuser script."""

from fusec import DataType, FusionDefinition

with FusionDefinition("seed_2146") as fd:
    T0 = fd.define_tensor(
        shape=[56, 1024, 1024],
        contiguity=[None, None, True],
        dtype=DataType.BFloat16,
    )
    T1 = fd.define_tensor(
        shape=[56, 1024, 1024],
        contiguity=[None, None, True],
        dtype=DataType.BFloat16,
    )
    T2 = fd.define_tensor(
        shape=[56, 1, 1024],
        contiguity=[True, None, True],
        dtype=DataType.BFloat16,
    )
    T3 = fd.define_tensor(shape=[56, 1024, 1024], contiguity=True, dtype=DataType.BFloat16)
    T4 = fd.define_tensor(shape=[56, 1024], contiguity=True, dtype=DataType.Float)
    T5 = fd.define_tensor(shape=[56, 1024, 1], contiguity=[True, True, None], dtype=DataType.Float)
    T6 = fd.define_tensor(shape=[56, 1024, 1024], contiguity=True, dtype=DataType.BFloat16)
    T7 = fd.ops.cast(T6, dtype=DataType.Float)
    T12 = fd.ops.broadcast_in_dim(T4, shape=[56, 1024, 1], broadcast_dims=[0, 1])
    T17 = fd.ops.broadcast_in_dim(T12, shape=[56, 1024, 1024], broadcast_dims=[0, 1, 2])
    T18 = fd.ops.sub(T7, T17)
    T23 = fd.ops.broadcast_in_dim(T5, shape=[56, 1024, 1024], broadcast_dims=[0, 1, 2])
    T24 = fd.ops.mul(T18, T23)
    T25 = fd.ops.cast(T0, dtype=DataType.Float)
    T26 = fd.ops.mul(T24, T25)
    T27 = fd.ops.cast(T1, dtype=DataType.Float)
    T28 = fd.ops.add(T26, T27)
    T29 = fd.ops.cast(T2, dtype=DataType.Float)
    T31 = fd.ops.add(1.0, T29)
    T32 = fd.ops.cast(T31, dtype=DataType.BFloat16)
    T37 = fd.ops.broadcast_in_dim(T32, shape=[56, 1024, 1024], broadcast_dims=[0, 1, 2])
    T38 = fd.ops.cast(T37, dtype=DataType.Float)
    T39 = fd.ops.cast(T3, dtype=DataType.Float)
    T40 = fd.ops.sum(T39, dims=[1])
    T41 = fd.ops.cast(T40, dtype=DataType.BFloat16)
    T46 = fd.ops.broadcast_in_dim(T41, shape=[56, 1, 1024], broadcast_dims=[0, 2])
    T47 = fd.ops.cast(T46, dtype=DataType.Float)
    T48 = fd.ops.sum(T47, dims=[1])
    T49 = fd.ops.cast(T48, dtype=DataType.BFloat16)
    T50 = fd.ops.mul(T38, T39)
    T51 = fd.ops.mul(T28, T39)
    T52 = fd.ops.sum(T51, dims=[1])
    T53 = fd.ops.cast(T52, dtype=DataType.BFloat16)
    T58 = fd.ops.broadcast_in_dim(T53, shape=[56, 1, 1024], broadcast_dims=[0, 2])
    T59 = fd.ops.cast(T58, dtype=DataType.Float)
    T60 = fd.ops.sum(T59, dims=[1])
    T61 = fd.ops.cast(T60, dtype=DataType.BFloat16)
    T62 = fd.ops.sum(T50, dims=[0, 1])
    T63 = fd.ops.cast(T62, dtype=DataType.BFloat16)
    T64 = fd.ops.mul(T25, T50)
    T65 = fd.ops.mul(T24, T50)
    T66 = fd.ops.sum(T65, dims=[0, 1])
    T67 = fd.ops.cast(T66, dtype=DataType.BFloat16)
    T68 = fd.ops.mul(T23, T64)
    T69 = fd.ops.mul(T18, T64)
    T70 = fd.ops.sum(T69, dims=[2])
    T75 = fd.ops.broadcast_in_dim(T70, shape=[56, 1024, 1], broadcast_dims=[0, 1])
    T76 = fd.ops.neg(T68)
    T77 = fd.ops.sum(T76, dims=[2])
    T82 = fd.ops.broadcast_in_dim(T77, shape=[56, 1024, 1], broadcast_dims=[0, 1])
    T84 = fd.ops.mul(-0.5, T75)
    T86 = fd.ops.pow(T5, 3.0)
    T87 = fd.ops.mul(T84, T86)
    T88 = fd.ops.sum(T82, dims=[2])
    T89 = fd.ops.sum(T87, dims=[2])
    T94 = fd.ops.broadcast_in_dim(T88, shape=[56, 1024, 1], broadcast_dims=[0, 1])
    T99 = fd.ops.broadcast_in_dim(T94, shape=[56, 1024, 1024], broadcast_dims=[0, 1, 2])
    T101 = fd.ops.mul(0.000976562, T99)
    T106 = fd.ops.broadcast_in_dim(T89, shape=[56, 1024, 1], broadcast_dims=[0, 1])
    T111 = fd.ops.broadcast_in_dim(T106, shape=[56, 1024, 1024], broadcast_dims=[0, 1, 2])
    T116 = fd.ops.broadcast_in_dim(T4, shape=[56, 1024, 1], broadcast_dims=[0, 1])
    T121 = fd.ops.broadcast_in_dim(T116, shape=[56, 1024, 1024], broadcast_dims=[0, 1, 2])
    T123 = fd.ops.mul(2.0, T111)
    T124 = fd.ops.sub(T7, T121)
    T125 = fd.ops.mul(T123, T124)
    S127 = fd.ops.reciprocal(1024.0)
    T128 = fd.ops.mul(T125, S127)
    T129 = fd.ops.add(T101, T128)
    T130 = fd.ops.add(T68, T129)
    T131 = fd.ops.cast(T130, dtype=DataType.BFloat16)
    # The two kernels of the dump in issue 2473.
    # fmt: off
    fd.pin(
        "first",
        [T12, T17, T18, T23, T24, T26, T27, T28, T40, T41, T46, T47, T48, T49, T51, T52, T53, T58,
         T59, T60, T61],
        scheduler="reduction",
    )
    fd.pin(
        "second",
        [T29, T31, T32, T37, T38, T50, T62, T63, T64, T65, T66, T67, T68, T69, T70, T75, T76, T77,
         T82, T84, T86, T87, T88, T89, T94, T99, T101, T106, T111, T116, T121, T123, T124, T125,
         T128, T129, T130, T131],
        scheduler="inner_outer_persistent",
    )
    # fmt: on
    fd.add_output(T49)
    fd.add_output(T61)
    fd.add_output(T63)
    fd.add_output(T67)
    fd.add_output(T131)
