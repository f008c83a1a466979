"""The mean and the largest magnitude of every column."""

from fusec import DataType, FusionDefinition

with FusionDefinition("column_mean") as fd:
    B, H = fd.define_dim("B", 4096), fd.define_dim("H", 2048)
    x = fd.define_tensor(shape=[B, H], contiguity=True, dtype=DataType.Float)

    average = fd.ops.mean(x, dims=[0])
    largest = fd.ops.max(fd.ops.abs(x), dims=[0])
    fd.add_output(average)
    fd.add_output(largest)
