"""Memory floors: distinct elements are charged once, untouched ones not at all."""

from __future__ import annotations

import pytest

from fusec.parse import read_text
from fusec.segment.traffic import bytes_read, bytes_written, traffic

HEAD = "fusion: f\ndims: {H: 64}\n"


def price(inputs: str, *ops: str, outputs: str) -> tuple[int, int]:
    lines = "".join(f"  - {op}\n" for op in ops)
    fusion = read_text(f"{HEAD}inputs: {{{inputs}}}\nops:\n{lines}outputs: [{outputs}]\n")
    assert traffic(fusion) == bytes_read(fusion) + bytes_written(fusion)
    return bytes_read(fusion), bytes_written(fusion)


X = 'x: "f32[100, H]"'


def test_an_input_read_twice_is_charged_once() -> None:
    found = price(X, "y = add(sin(x), cos(x))", outputs="y")
    assert found == (25600, 25600)


def test_a_slice_is_charged_for_what_it_reads() -> None:
    assert price(X, "y = sin(slice(x, [0, 0], [10, H]))", outputs="y") == (2560, 2560)


@pytest.mark.parametrize(
    ("second", "rows"), [("[10, 0], [20, H]", 20), ("[5, 0], [15, H]", 15), ("[0, 0], [10, H]", 10)]
)
def test_overlapping_slices_are_charged_for_their_union(second: str, rows: int) -> None:
    ops = ("a = slice(x, [0, 0], [10, H])", f"b = slice(x, {second})", "y = add(sin(a), sin(b))")
    assert price(X, *ops, outputs="y")[0] == rows * 64 * 4


def test_a_slice_beside_the_whole_costs_nothing() -> None:
    ops = ("a = slice(x, [0, 0], [10, H])", "y = sin(a)", "z = cos(x)")
    assert price(X, *ops, outputs="y, z")[0] == 25600


def test_a_slice_of_a_slice_of_a_transpose() -> None:
    ops = (
        "a = slice(permute(x, [1, 0]), [8, 0], [16, 100])",
        "y = sin(slice(a, [0, 50], [4, 100]))",
    )
    # 16 bytes of each of 50 rows, from a sector each.
    assert price(X, *ops, outputs="y")[0] == 50 * 32


def test_steps_inside_a_sector_save_nothing() -> None:
    ops = ("y = sin(slice(x, [0, 0], [100, H], [1, 2]))",)
    assert price(X, *ops, outputs="y")[0] == 100 * 64 * 4
    ops = ("y = sin(slice(x, [0, 0], [100, H], [2, 1]))",)
    assert price(X, *ops, outputs="y")[0] == 50 * 64 * 4


def test_an_expanded_input_is_charged_for_its_memory() -> None:
    expanded = 'x: {type: "f32[100, H]", contiguity: [null, true]}'
    assert price(expanded, "y = sin(x)", outputs="y") == (64 * 4, 25600)


def test_a_tensor_that_is_only_measured_is_not_read() -> None:
    ops = ("n = size(x, dim=0)", "y = mul(w, n)")
    assert price(X + ', w: "f32[H]"', *ops, outputs="y")[0] == 64 * 4
