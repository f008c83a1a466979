"""Other sizes for kernels that were built for the default ones."""

from __future__ import annotations

import random
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.reference.evaluate import evaluate
from fusec.run.inputs import choose_sizes, random_inputs

CHOICES = (1, 2, 3, 7, 16, 31, 64, 100, 129, 256)
LIMIT = 1 << 17
"""Elements of the largest tensor at other sizes."""


def other_sizes(fusion: Fusion, program: Any, seed: int) -> dict[str, int] | None:
    """Return sizes that the program's guards and the graph allow, or None where none were found."""
    scalars = {i.value.name for i in fusion.inputs}
    named = [d for d in fusion.dims if "." not in d.name and d.name not in scalars]
    fixed = {
        g.value.symbols and next(iter(g.value.symbols))
        for g in program.guards
        if g.relation == "==" and len(g.value.symbols) == 1
    }
    free = [d for d in named if d.name not in fixed]
    rng = random.Random(f"{seed}:{fusion.name}:{len(fusion.nodes)}")
    for _ in range(4 if free else 0):
        wanted = {
            d.name: max(1, rng.choice(CHOICES) // d.multiple_of) * d.multiple_of
            for d in free
            if rng.random() < 0.7
        }
        if sizes := _allowed(fusion, program, wanted, seed):
            return sizes
    return None


def _allowed(
    fusion: Fusion, program: Any, wanted: dict[str, int], seed: int
) -> dict[str, int] | None:
    try:
        sizes = choose_sizes(fusion, wanted)
        for value in fusion.values:
            total = 1
            for extent in value.shape:
                size = extent.evaluate(sizes)
                if size < 0:
                    return None
                total *= size
            if total > LIMIT:
                return None
        program.check_guards(sizes)
        # The reference knows what a kernel does not check: ranges of slices, places of indices.
        evaluate(fusion, random_inputs(fusion, sizes, seed), sizes)
    except FusecError as error:
        if error.exit_code != 2:
            raise
        return None
    return sizes
