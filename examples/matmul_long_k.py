"""A small product with a very long inner dim, for split-K."""

from fusec import DataType, FusionDefinition

with FusionDefinition("matmul_long_k") as fd:
    M, N = fd.define_dim("M", 256), fd.define_dim("N", 256)
    K = fd.define_dim("K", 65536, multiple_of=64)
    a = fd.define_tensor(shape=[M, K], contiguity=True, dtype=DataType.BFloat16)
    b = fd.define_tensor(shape=[K, N], contiguity=True, dtype=DataType.BFloat16)

    c = fd.ops.matmul(a, b)
    fd.add_output(c)
