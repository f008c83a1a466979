"""Bias and the exact GELU, between the two matrix products of an MLP."""

from fusec import DataType, FusionDefinition

with FusionDefinition("gelu_bias") as fd:
    T = fd.define_dim("T", 2048)  # tokens
    F = fd.define_dim("F", 4096, multiple_of=8)  # features of the hidden layer
    x = fd.define_tensor(shape=[T, F], contiguity=True, dtype=DataType.BFloat16)
    bias = fd.define_tensor(shape=[F], contiguity=True, dtype=DataType.BFloat16)

    # Half types are cast to f32 where the computing begins, and back where it ends.
    z = fd.ops.cast(x, DataType.Float) + fd.ops.cast(bias, DataType.Float)
    # gelu(z) = z / 2 (1 + erf(z / sqrt(2))), written out; fd.ops.gelu(z) is the same.
    cdf = (fd.ops.erf(z * 0.7071067811865476) + 1.0) * 0.5
    y = fd.ops.cast(z * cdf, DataType.BFloat16)
    fd.add_output(y)
