"""The random state of `fd.execute`: PyTorch's generator for its tensors, else fusec's own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from fusec.diagnostics import InternalError
from fusec.generator import PARTS, default_generator, next_torch_pair
from fusec.ir.dtype import U64
from fusec.ir.graph import Fusion
from fusec.parse.dsl.inputs import Actual


def with_generator(fusion: Fusion, actuals: Sequence[Actual]) -> tuple[Actual, ...]:
    """Return the inputs, followed by the generator's state if the fusion reads it."""
    tensor = next((a.tensor for a in actuals if a.tensor is not None), None)

    @cache
    def pair() -> tuple[int, int]:
        return default_generator.next_pair() if tensor is None else torch_pair(tensor)

    def state(part: str) -> Actual:
        def array() -> Any:
            import numpy as np

            return np.array(pair()[PARTS.index(part)], np.uint64)

        return Actual((), (), U64, array, _cannot_write)

    return (*actuals, *(state(i.generator) for i in fusion.inputs if i.generator))


def torch_pair(tensor: Any) -> tuple[int, int]:
    """Return seed and offset from the generator of a PyTorch tensor's device, and advance it."""
    torch = sys.modules["torch"]
    if not tensor.is_cuda:
        # It has no offset: its next number is used as a seed.
        return int(torch.empty((), dtype=torch.int64).random_()), 0
    return next_torch_pair(torch.cuda.default_generators[tensor.device.index])


def _cannot_write(_: Any) -> None:
    raise InternalError("an output is written to the generator's state")
