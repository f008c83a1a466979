"""What blocks read again, where operands are smaller than what is stored, and what that costs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from families import GPU

from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.schedule.pointwise.family import Pointwise
from fusec.schedule.pointwise.rereads import reread_bytes

FAMILY = Pointwise()


def total(first: str, second: str, kind: str = "bf16") -> Fusion:
    return read_text(
        f"fusion: total\ninputs: {{x: '{kind}[{first}]', z: '{kind}[{second}]'}}\nops:\n"
        "  - y = add(x, z)\noutputs: [y]\n"
    )


def microseconds(fusion: Fusion, **settings: Any) -> float:
    proposal: Any = FAMILY.propose(fusion, GPU, settings)
    return 1e6 * proposal.seconds(GPU)


def test_rows_that_share_operands_are_taken_together_where_l2_bounds() -> None:
    """1297 us with a row a thread, 1128 with eight (H200); memory alone takes 1040."""
    fusion = total("8192, 1, 4096", "64, 4096")
    assert microseconds(fusion, unroll=1) == pytest.approx(1297, rel=0.02)
    assert microseconds(fusion, unroll=8) < 0.85 * 1297
    problem: Any = FAMILY.built(fusion)
    assert FAMILY.default_parameters(problem, GPU).unroll == 8
    assert microseconds(fusion) == microseconds(fusion, unroll=8)


@pytest.mark.parametrize(
    ("first", "second"),
    [("8192, 64, 4096", "64, 4096"), ("8192, 64, 4096", "4096"), ("8192, 64, 1", "64, 4096")],
)
def test_where_memory_bounds_rows_are_as_they_were(first: str, second: str) -> None:
    fusion = total(first, second)
    prices = {microseconds(fusion, unroll=u) for u in (1, 2, 4, 8)}
    assert prices == {microseconds(fusion)}


def drawn(seed: int) -> tuple[Any, Any]:
    """Return a problem of broadcast operands and legal parameters, all extents powers of two."""
    draw = random.Random(seed)
    extents = [draw.choice([2, 4, 8]) for _ in range(3)] + [draw.choice([16, 32, 64])]
    shapes = [[e if draw.random() < 0.5 else 1 for e in extents] for _ in range(2)]
    # Every axis has an operand that runs along it.
    shapes[1] = [e if a == 1 else b for a, b, e in zip(*shapes, extents, strict=True)]
    first, second = (", ".join(map(str, s)) for s in shapes)
    problem: Any = FAMILY.built(total(first, second, draw.choice(["bf16", "f32"])))
    default_parameters = FAMILY.default_parameters(problem, GPU)
    for _ in range(100):
        tried = replace(
            default_parameters,
            break_point=draw.randrange(4),
            vector_width=draw.choice([1, 2, 4]),
            unroll=draw.choice([1, 2, 4]),
            threads_x=draw.choice([1, 2, 4, 8]),
            threads_y=draw.choice([1, 2, 4]),
            shifted=False,
        )
        if FAMILY.legal(problem, tried, GPU) is None:
            return problem, tried
    return problem, default_parameters


def counted(problem: Any, p: Any) -> int:
    """Return what all blocks read beyond the first time, element by element."""
    fusion = problem.fusion
    (output,) = fusion.outputs
    shape = [e.value for e in output.value.shape]
    points = np.indices(shape).reshape(len(shape), -1)
    columns = int(np.prod(shape[p.break_point :]))
    row, column = np.divmod(np.arange(points.shape[1]), columns)
    chunk = column // p.vector_width
    turns = p.unroll if p.break_point else 1
    down = row // (p.threads_y * turns)
    across = chunk // (p.threads_x * (1 if p.break_point else p.unroll))
    block = down * (across.max() + 1) + across
    again = 0
    for entry in fusion.inputs:
        extents = [1] * (len(shape) - entry.value.rank) + [e.value for e in entry.value.shape]
        places = np.zeros(points.shape[1], np.int64)
        for axis, extent in enumerate(extents):
            places = places * extent + (points[axis] if extent > 1 else 0)
        loaded = len(np.unique(block * int(np.prod(extents)) + places))
        again += (loaded - int(np.prod(extents))) * entry.value.dtype.size
    return again


@pytest.mark.parametrize("seed", range(40))
def test_what_is_read_again_is_what_the_blocks_read(seed: int) -> None:
    problem, p = drawn(seed)
    assert reread_bytes(problem, p) == counted(problem, p)


def test_what_a_block_reads_twice_is_no_reread() -> None:
    """Halves of a row change places inside one block: L1 has them."""
    fusion = read_text(
        "fusion: halves\ninputs: {x: 'bf16[512, 64]'}\nops:\n"
        "  - low = slice(x, start_indices=[0, 0], end_indices=[512, 32])\n"
        "  - high = slice(x, start_indices=[0, 32], end_indices=[512, 64])\n"
        "  - y = add(x, cat([neg(high), low], dim=1))\noutputs: [y]\n"
    )
    problem: Any = FAMILY.built(fusion)
    assert reread_bytes(problem, FAMILY.default_parameters(problem, GPU)) < 0.05 * 512 * 64 * 2
