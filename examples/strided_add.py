"""Adds two matrices that are read in place, one with padded rows, one transposed."""

from fusec import DataType, FusionDefinition

with FusionDefinition("strided_add") as fd:
    M, N = fd.define_dim("M", 1024), fd.define_dim("N", 2048)
    # Rows apart by a stride that is known at run time.
    x = fd.define_tensor(shape=[M, N], contiguity=[False, True], dtype=DataType.Float)
    # The memory of an [N, M] matrix.
    y = fd.define_tensor(shape=[M, N], strides=[1, M], dtype=DataType.Float)

    z = x + y
    fd.add_output(z)
