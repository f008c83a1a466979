"""Elements that take turns, or lie two apart, or in reverse: wide accesses of which lanes pick."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from families import GPU, assert_builds, plan_of, text_of, wrong_on_host

from fusec.ir.graph import Fusion
from fusec.lowering import optimise, segment
from fusec.options import CompileOptions
from fusec.parse import read_text

PAIRS = """
fusion: rotated_pairs
dims: {{T: {tokens}, N: {heads}, P: {pairs}}}
inputs: {{q: '{kind}[T, N, P, 2]', cos: 'f32[T, P]', sin: 'f32[T, P]'}}
ops:
  - qf = cast(q, f32)
  - even = slice(qf, start_indices=[0, 0, 0, 0], end_indices=[T, N, P, 1])
  - odd = slice(qf, start_indices=[0, 0, 0, 1], end_indices=[T, N, P, 2])
  - cb = broadcast_in_dim(cos, shape=[T, N, P, 1], broadcast_dims=[0, 2])
  - sb = broadcast_in_dim(sin, shape=[T, N, P, 1], broadcast_dims=[0, 2])
  - turned = cat([sub(mul(even, cb), mul(odd, sb)), add(mul(odd, cb), mul(even, sb))], dim=3)
  - y = cast(reshape(turned, new_shape=[T, N, P * 2]), {kind})
outputs: [y]
"""
"""Rotary embedding of neighbouring elements."""


def pairs(kind: str, tokens: int = 3, heads: int = 2, pairs: int = 24) -> Fusion:
    return read_text(PAIRS.format(kind=kind, tokens=tokens, heads=heads, pairs=pairs))


def of_slices(kind: str) -> Fusion:
    """Return the same rotation of a matrix, by every second element and a stack."""
    cut = "start_indices=[0, {}], end_indices=[6, 48], strides=[1, 2]"
    return read_text(
        f"fusion: slices\ninputs: {{x: '{kind}[6, 48]', table: '{kind}[6, 24]'}}\nops:\n"
        f"  - even = slice(x, {cut.format(0)})\n  - odd = slice(x, {cut.format(1)})\n"
        "  - first = reshape(sub(even, mul(odd, table)), new_shape=[6, 24, 1])\n"
        "  - second = reshape(add(odd, mul(even, table)), new_shape=[6, 24, 1])\n"
        "  - y = reshape(cat([first, second], dim=2), new_shape=[6, 48])\noutputs: [y]\n"
    )


def groups(size: int) -> Fusion:
    """Return runs of `size` elements of two tensors that take turns."""
    return read_text(
        f"fusion: groups\ninputs: {{a: 'bf16[5, 12, {size}]', b: 'bf16[5, 12, {size}]'}}\nops:\n"
        f"  - y = reshape(cat([neg(a), b], dim=2), new_shape=[5, {24 * size}])\noutputs: [y]\n"
    )


def one(op: str, shape: str = "[6, 48]", kind: str = "bf16") -> Fusion:
    return read_text(
        f"fusion: one\ninputs: {{x: '{kind}{shape}'}}\nops:\n  - y = neg({op})\noutputs: [y]\n"
    )


EVERY_SECOND = "slice(x, start_indices=[0, 1], end_indices=[6, 48], strides=[1, 2])"
REVERSED = "flip(x, dims=[1])"


def loads(fusion: Fusion) -> list[tuple[str, str]]:
    """Return (width, buffer) of the wide loads of a fusion's only kernel; none is by elements."""
    text = text_of(plan_of("pointwise", fusion))
    names = "|".join(i.value.name for i in fusion.inputs)
    assert not re.search(rf"\b(?:{names})\[", text.split("{", 1)[1]), text
    return re.findall(rf"load_readonly<(\w+)>\(({names})\b", text)


@pytest.mark.parametrize(
    ("fusion", "expected"),
    [
        (pairs("bf16"), [("4", "cos"), ("kVec", "q"), ("4", "sin")]),
        (pairs("f32"), [("2", "cos"), ("kVec", "q"), ("2", "sin")]),
        (of_slices("bf16"), [("4", "table"), ("kVec", "x")]),
        (groups(1), [("4", "a"), ("4", "b")]),
        (groups(2), [("4", "a"), ("4", "b")]),
        (one(EVERY_SECOND), [("16", "x")]),
        (one(REVERSED), [("kVec", "x")]),
    ],
    ids=["pairs", "pairs of f32", "slices", "turns", "turns of two", "every second", "reversed"],
)
def test_each_line_is_loaded_once_by_wide_accesses(
    fusion: Fusion, expected: list[tuple[str, str]]
) -> None:
    assert sorted(loads(fusion), key=lambda load: load[1]) == expected


def test_pairs_are_rotated_by_one_kernel_that_moves_what_it_must() -> None:
    fusion = pairs("bf16", tokens=8192, heads=32, pairs=48)
    options = CompileOptions(untuned=True)
    found = segment(optimise(fusion, options), options)
    (only,) = found.segments
    assert only.estimate is not None
    must = 2 * 2 * 8192 * 32 * 96 + 2 * 4 * 8192 * 48
    assert only.estimate.bytes == must
    assert only.estimate.seconds(GPU) < 1.15 * must / GPU.bandwidth + GPU.launch


@pytest.mark.parametrize(
    "fusion",
    [
        one(REVERSED, "[6, 45]"),
        one("slice(x, start_indices=[0], end_indices=[31], strides=[2])", "[31]"),
    ],
    ids=["reversed", "every second"],
)
def test_what_might_lie_beyond_its_tensor_is_read_by_elements(fusion: Fusion) -> None:
    assert "x[" in text_of(plan_of("pointwise", fusion))


def test_what_others_overwrite_is_not_read_with_neighbours() -> None:
    """Of pairs the first is changed in place: its vector would hold others, too."""
    fusion = read_text(
        "fusion: into\ninputs: {x: 'bf16[6, 48, 2]'}\nops:\n"
        "  - first = slice(x, start_indices=[0, 0, 0], end_indices=[6, 48, 1])\n"
        "  - y = update_slice(x, neg(first), start_indices=[0, 0, 0])\noutputs: [y: {alias: x}]\n"
    )
    assert "fusec::load" not in text_of(plan_of("pointwise", fusion)).split("{", 1)[1]


def shared() -> Fusion:
    """Return rows to which the same row is added in reverse."""
    return read_text(
        "fusion: shared\ninputs: {x: 'bf16[9, 48]', w: 'bf16[48]'}\nops:\n"
        "  - y = add(x, flip(w, dims=[0]))\noutputs: [y]\n"
    )


def test_a_window_that_all_rows_share_is_loaded_once() -> None:
    text = text_of(plan_of("pointwise", shared(), break_point=1, unroll=4))
    once, turns = text.split("fusec::Vec<fusec::bf16, kVec> x_ahead[kUnroll]")
    assert "(w + " in once
    assert "(w + " not in turns


def drawn(seed: int) -> tuple[Fusion, random.Random]:
    """Return a random fusion of rows that are cut, reversed, or take turns."""
    draw = random.Random(seed)
    kind, rows = draw.choice(["bf16", "f32", "i8"]), draw.randint(1, 5)
    columns = draw.choice([8, 24, 31, 48, 64])
    ops, last, width = list[str](), "x", columns
    for number in range(draw.randint(1, 3)):
        name = f"m{number}"
        step, start = draw.choice([1, 2, 2, 3]), draw.choice([0, 0, 1, 2])
        how = draw.choice(["cut", "flip", "turns", "turns"])
        if how == "cut" and width > 8:
            ops.append(
                f"{name} = slice({last}, start_indices=[0, {start}], "
                f"end_indices=[{rows}, {width}], strides=[1, {step}])"
            )
            width = -(-(width - start) // step)
        elif how == "turns":
            group = draw.choice([g for g in (1, 2, 4) if width % g == 0])
            shape = f"[{rows}, {width // group}, {group}]"
            ops.append(f"{name}_a = reshape({last}, new_shape={shape})")
            ops.append(f"{name}_b = neg(flip({name}_a, dims=[{draw.choice([1, 2])}]))")
            ops.append(f"{name}_c = cat([{name}_a, {name}_b], dim=2)")
            width *= 2
            ops.append(f"{name} = reshape({name}_c, new_shape=[{rows}, {width}])")
        else:
            ops.append(f"{name} = flip({last}, dims=[1])")
        last = name
    ops.append(f"y = add({last}, w)")
    lines = "".join(f"  - {op}\n" for op in ops)
    inputs = f"{{x: '{kind}[{rows}, {columns}]', w: '{kind}[{width}]'}}"
    return read_text(f"fusion: drawn\ninputs: {inputs}\nops:\n{lines}outputs: [y]\n"), draw


def plans(seeds: range) -> Iterator[Any]:
    for fusion in (pairs("bf16"), pairs("f32"), of_slices("bf16"), groups(2), one(EVERY_SECOND)):
        for unroll in (1, 4):
            yield plan_of("pointwise", fusion, unroll=unroll)
    yield plan_of("pointwise", shared(), break_point=1, unroll=4)
    for seed in seeds:
        fusion, draw = drawn(seed)
        yield plan_of("pointwise", fusion, unroll=draw.choice([1, 2]))


@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 60), marks=pytest.mark.nightly)], ids=["3", "60"]
)
def test_lanes_pick_their_elements(seeds: range, tmp_path: Path) -> None:
    assert wrong_on_host(list(plans(seeds)), tmp_path) == []


def test_kernels_of_windows_build() -> None:
    assert_builds(plan_of("pointwise", pairs("bf16")))
