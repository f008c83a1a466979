"""Rotary position embedding with neighbours as complex numbers, turned by products."""

from fusec import DataType, FusionDefinition

with FusionDefinition("complex_rotate") as fd:
    B = fd.define_dim("B", 2)
    NH = fd.define_dim("NH", 16)  # heads
    S = fd.define_dim("S", 1024)  # positions
    D2 = fd.define_dim("D2", 64, multiple_of=8)  # complex numbers of a head
    q = fd.define_tensor(shape=[B, NH, S, D2], contiguity=True, dtype=DataType.ComplexFloat)
    angle = fd.define_tensor(shape=[S, D2], contiguity=True, dtype=DataType.Float)

    turn = fd.ops.complex(fd.ops.cos(angle), fd.ops.sin(angle))
    y = q * turn
    fd.add_output(y)
