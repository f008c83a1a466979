"""Attributes that are scalar inputs: their values come with each execution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.parse.dsl import DataType, FusionDefinition
from fusec.parse.dsl.session import recording


def attention() -> FusionDefinition:
    with FusionDefinition() as fd:
        q = fd.define_tensor(shape=[-1] * 4, contiguity=True, dtype=DataType.Float)
        causal = fd.define_scalar(dtype=DataType.Bool)
        scale = fd.define_scalar(dtype=DataType.Double)
        results = fd.ops.sdpfa_fwd(q, q, q, is_causal=causal, scale=scale)
        fd.add_output(results[0])
    return fd


def test_each_execution_defines_the_fusion_with_its_scalars() -> None:
    made: list[Fusion] = []

    def note(fusion: Fusion, _: Any) -> None:
        made.append(fusion)

    fd, q = attention(), np.ones((2, 3, 8, 16), np.float32)
    with recording(note):
        for causal, scale in ((True, 0.5), (False, 0.5), (True, 0.25), (True, 0.5)):
            fd.execute([q, causal, scale])
    assert made[0] == made[3]
    assert len({len(f.nodes) for f in made[:2]}) == 2  # the mask is there or not
    assert made[0] != made[2]
    assert [i.default for i in made[1].inputs] == [None, False, 0.5]


def test_without_an_execution_the_scalar_is_named() -> None:
    with pytest.raises(FusecError, match="the value of `causal` is needed") as caught:
        attention().fusion()
    assert "fd.execute(inputs)" in str(caught.value.diagnostic.help)


def test_scalars_elsewhere_stay_inputs() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[4], contiguity=True, dtype=DataType.Float)
        s = fd.define_scalar(dtype=DataType.Double)
        fd.add_output(fd.ops.mul(x, s))
    assert len(fd.fusion().inputs) == 2
    assert fd.fusion().nodes[0].inputs[1].name == "s"
