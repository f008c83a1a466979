"""Random graphs on the GPU: what nobody thought of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from gpu_check import check_on_gpu
from hypothesis import HealthCheck, Phase, given, seed, settings
from strategies import fusions, random_inputs

from fusec.diagnostics import Unsupported
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, I32, I64, U8
from fusec.ir.graph import Fusion

pytestmark = pytest.mark.gpu

EACH = 10
"""Graphs in one test; a test is one seed, so that workers share them."""
DTYPES = (F32, BF16, F64, F16, I32, I64, U8, BOOL)


def drawn(number: int, count: int, **options: Any) -> Iterator[Fusion]:
    """Return random fusions of one seed."""
    found: list[Fusion] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(fusions(dtypes=DTYPES, **options))
    def collect(fusion: Fusion) -> None:
        found.append(fusion)

    collect()
    return iter(found)


@pytest.mark.parametrize("number", range(24))
def test_random_fusions(number: int) -> None:
    for fusion in drawn(number, EACH, aliases=number % 2 == 1, max_steps=4 + number % 9):
        try:
            check_on_gpu(fusion, inputs=random_inputs(fusion), decided=False)
        except Unsupported:
            continue  # refused by name, which is an answer
