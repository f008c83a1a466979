"""`fd.validate` of tensors where they lie, with a program that writes one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fusec import executor
from fusec.diagnostics import FusecError
from fusec.nvfuser.definition import DirectDefinition
from fusec.parse.dsl import DataType, devices, session
from fusec.parse.dsl.inputs import Actual, adopt


class OnGpu:
    """A tensor whose elements are read by copying them to the host."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def fusec_actual(self) -> Actual:
        memory = self.memory
        return replace(adopt([memory])[0], array=memory.copy)


@pytest.mark.parametrize("factor", [3.0, 3.1])
def test_inputs_are_read_before_outputs_are_written_there(monkeypatch, factor: float) -> None:
    with DirectDefinition() as fd:
        given = fd.define_tensor(shape=[-1], dtype=DataType.Float)
        fd.add_output(fd.ops.add(given, 1.0), given)
        fd.add_output(fd.ops.mul(given, 3.0))

    def program(x: OnGpu) -> tuple[OnGpu, Any]:
        tripled = (x.memory * factor).astype(np.float32)
        x.memory += 1
        return x, tripled

    monkeypatch.setattr(executor, "program", lambda fusion: program)
    monkeypatch.setattr(devices, "all_on_gpu", lambda given: True)
    assert session.current().calls
    x = OnGpu(np.arange(8, dtype=np.float32))
    if factor != 3.0:
        with pytest.raises(FusecError, match="differs from the reference"):
            fd.validate([x])
        return
    (tripled,) = fd.validate([x])
    np.testing.assert_array_equal(tripled, np.arange(8) * 3.0)
    np.testing.assert_array_equal(x.memory, np.arange(8) + 1)
