"""Demanded elements: against what outputs depend on, one by one, and in any order of ops."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from draws import times
from paths import ROOT
from test_regressions import FOLDER

from fusec import driver
from fusec.index.boxes import Box, union, volume, without
from fusec.index.demanded import demand
from fusec.ir.dtype import F32, I64
from fusec.ir.graph import Fusion, Value
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.segment.floor import Floor, floor_bytes
from fusec.segment.traffic import bytes_read, traffic, work

EXAMPLES = ROOT / "examples"


def points(box: Box) -> set[tuple[int, ...]]:
    """Return the elements of a box, one by one."""
    found: set[tuple[int, ...]] = {()}
    for where in box:
        found = {(*p, k) for p in found for k in range(*where)}
    return found


@pytest.mark.parametrize("seed", range(4))
def test_unions_and_differences_of_boxes(seed: int) -> None:
    draw = Random(seed)

    def drawn(rank: int, steps: tuple[int, ...] = (1, 1, 2, 3)) -> Box:
        starts = [draw.randint(0, 6) for _ in range(rank)]
        return tuple((s, s + draw.randint(0, 9), draw.choice(steps)) for s in starts)

    for _ in range(100):
        rank = draw.randint(0, 3)
        boxes = [drawn(rank) for _ in range(draw.randint(1, 5))]
        count = len(set[tuple[int, ...]]().union(*(points(b) for b in boxes)))
        assert union(boxes) == (count, count)
        hole = drawn(rank, (1,))
        parts = without(boxes[0], hole)
        if volume(hole):
            assert set().union(*(points(p) for p in parts)) == points(boxes[0]) - points(hole)
            assert sum(volume(p) for p in parts) == len(points(boxes[0]) - points(hole))


class Drawn:
    """A random graph of few elements, without an op that would hide a NaN."""

    def __init__(self, seed: int) -> None:
        self.draw, self.builder = Random(seed), GraphBuilder("drawn")
        self.given: dict[str, np.ndarray] = {}
        shape = [self.draw.randint(1, 4) for _ in range(self.draw.randint(1, 3))]
        self.values = [self.input(np.ones(shape, np.float32))]
        for _ in range(self.draw.randint(2, 6)):
            self.values.append(self.step(self.draw.choice(self.values)))
        for value in self.draw.sample(self.values[1:], self.draw.randint(1, 2)):
            self.builder.output(self.builder.apply("neg", value))
        self.fusion = self.builder.finish()

    def input(self, array: np.ndarray) -> Value:
        name = f"x{len(self.given)}"
        self.given[name] = array
        dtype = F32 if array.dtype == np.float32 else I64
        return self.builder.input(name, dtype, list(array.shape))

    def step(self, x: Value) -> Value:
        shape = [int(e.value) for e in x.shape]
        kinds = [self.unary, self.binary, self.reshaped, self.joined]
        if shape:
            kinds += [self.sliced, self.permuted, self.flipped, self.padded, self.picked,
                      self.selected, self.summed, self.expanded]  # fmt: skip
        return self.draw.choice(kinds)(x, shape)

    def unary(self, x: Value, shape: list[int]) -> Value:
        return self.builder.apply(self.draw.choice(["neg", "sin"]), x)

    def binary(self, x: Value, shape: list[int]) -> Value:
        alike = [v for v in self.values if v.shape == x.shape]
        return self.builder.apply("add", x, self.draw.choice(alike))

    def reshaped(self, x: Value, shape: list[int]) -> Value:
        left, target = int(np.prod(shape)), list[int]()
        while left > 1:
            part = self.draw.choice([k for k in range(1, left + 1) if left % k == 0])
            target.append(part)
            left //= part
        return self.builder.apply("reshape", x, new_shape=target or [1])

    def joined(self, x: Value, shape: list[int]) -> Value:
        alike = [v for v in self.values if v.shape == x.shape and shape]
        if not alike:
            return self.builder.apply("neg", x)
        axis = self.draw.randrange(len(shape))
        return self.builder.apply("cat", [x, self.draw.choice(alike)], dim=axis)

    def sliced(self, x: Value, shape: list[int]) -> Value:
        starts = [self.draw.randrange(e) for e in shape]
        ends = [self.draw.randint(s + 1, e) for s, e in zip(starts, shape, strict=True)]
        steps = [self.draw.choice([1, 1, 2]) for _ in shape]
        return self.builder.apply("slice", x, start_indices=starts, end_indices=ends, strides=steps)

    def permuted(self, x: Value, shape: list[int]) -> Value:
        order = self.draw.sample(range(len(shape)), len(shape))
        return self.builder.apply("permute", x, dims=order)

    def flipped(self, x: Value, shape: list[int]) -> Value:
        return self.builder.apply("flip", x, dims=[self.draw.randrange(len(shape))])

    def padded(self, x: Value, shape: list[int]) -> Value:
        # The last dim is the first of `pad`'s widths.
        widths = [self.draw.choice([0, 0, 1, -(e > 3)]) for e in reversed(shape) for _ in "ab"]
        return self.builder.apply("pad", x, pad_widths=widths)

    def expanded(self, x: Value, shape: list[int]) -> Value:
        made = self.builder.apply("reshape", x, new_shape=[1, *shape])
        return self.builder.apply("expand", made, shape=[2, *shape])

    def summed(self, x: Value, shape: list[int]) -> Value:
        name = self.draw.choice(["sum", "cumsum"])
        axis = self.draw.randrange(len(shape))
        return self.builder.apply(name, x, **({"dims": [axis]} if name == "sum" else {"dim": axis}))

    def picked(self, x: Value, shape: list[int]) -> Value:
        axis = self.draw.randrange(len(shape))
        rng = np.random.default_rng(self.draw.randrange(1 << 20))
        index = rng.permuted(np.broadcast_to(_ramp(shape, axis), shape), axis=axis)
        count = self.draw.randint(1, shape[axis])
        index = np.ascontiguousarray(np.take(index, range(count), axis))
        return self.builder.apply("take_along_axis", x, self.input(index), dim=axis)

    def selected(self, x: Value, shape: list[int]) -> Value:
        axis = self.draw.randrange(len(shape))
        chosen = self.draw.sample(range(shape[axis]), self.draw.randint(1, shape[axis]))
        index = self.input(np.array(chosen, np.int64))
        return self.builder.apply("index_select", x, index, dim=axis)


def _ramp(shape: list[int], axis: int) -> np.ndarray:
    ramp = np.arange(shape[axis])
    return ramp.reshape([-1 if k == axis else 1 for k in range(len(shape))])


def reached(fusion: Fusion, name: str, given: dict[str, np.ndarray]) -> int:
    """Return how many elements of an input some output depends on: those whose NaN it shows."""
    found = 0
    for place in np.ndindex(*given[name].shape):
        changed = given[name].copy()
        changed[place] = np.nan
        results = evaluate(fusion, {**given, name: changed}, {})
        found += any(bool(np.isnan(r).any()) for r in results.values())
    return found


def test_what_outputs_depend_on() -> None:
    exact = 0
    for seed in range(times(150)):
        drawn = Drawn(seed)
        needed = demand(drawn.fusion).of(drawn.values[0])
        count = reached(drawn.fusion, "x0", drawn.given)
        assert needed.least <= count <= needed.most, seed
        exact += needed.least == count
    assert exact > times(150) * 0.9


def test_a_wrong_map_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusec.index.demanded.scaled", lambda where, by, offset: where)
    with pytest.raises((AssertionError, IndexError)):
        test_what_outputs_depend_on()


def read(inputs: str, *ops: str, outputs: str = "y") -> Fusion:
    lines = "".join(f"  - {op}\n" for op in ops)
    return read_text(f"fusion: f\ninputs: {{{inputs}}}\nops:\n{lines}outputs: [{outputs}]\n")


X = 'x: "bf16[512, 4096]"'
ORDERS: dict[str, tuple[str, Callable[[str], str]]] = {
    "gather": ('i: "i64[512, 8]"', lambda v: f"take_along_axis({v}, i, 1)"),
    "rows": ('i: "i64[7]"', lambda v: f"index_select({v}, i, 0)"),
    "embedding": ('i: "i64[9]"', lambda v: f"embedding_fwd(i, {v})"),
    "slice": ("", lambda v: f"slice({v}, [0, 128], [512, 256])"),
    "flip": ("", lambda v: f"flip(slice({v}, [3, 0], [9, 4096]), [1])"),
    "pad": ("", lambda v: f"pad({v}, [-100, 3, 0, 0])"),
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("op", ["cast({}, f32)", "exp(cast({}, f32))", "mul({}, 2.0)"])
def test_either_order_of_an_op_and_a_movement_needs_the_same(name: str, op: str) -> None:
    more, moved = ORDERS[name]
    inputs = f"{X}, {more}" if more else X
    first = read(inputs, "a = " + op.format("x"), "y = " + moved("a"))
    last = read(inputs, "a = " + moved("x"), "y = " + op.format("a"))
    assert traffic(first) == traffic(last)
    assert floor_bytes(first) == floor_bytes(last) <= traffic(first)
    assert bytes_read(first) < 512 * 4096 * 2
    least, most = work(last), work(first)
    assert most == pytest.approx(least, rel=0.05)


def test_no_bound_exceeds_what_one_kernel_would_move() -> None:
    for path in (*EXAMPLES.glob("*.yaml"), *FOLDER.glob("*.yaml")):
        if "# refused" in path.read_text():
            continue
        for program in driver.programs(str(path)):
            fusion = program.original
            assert 0 <= floor_bytes(fusion) <= traffic(fusion), path


def test_one_slice_of_two_and_a_copy_have_a_bound() -> None:
    half = read(X, "y = neg(slice(x, [0, 2048], [512, 4096]))")
    assert floor_bytes(half) == 2 * 512 * 2048 * 2
    pair = read(X, "a = slice(x, [0, 0], [512, 8])", "b = slice(x, [0, 8], [512, 16])",
                "y = mul(a, b)")  # fmt: skip
    assert Floor(pair).input_bytes(pair.inputs[0]) == 512 * 16 * 2


def test_what_an_index_picks_is_charged_by_sectors() -> None:
    """A place is a sector of 32 bytes, unless what lies beside it is read, too."""
    picked = read(f'{X}, i: "i64[512, 8]"', "y = take_along_axis(x, i, 1)")
    assert bytes_read(picked) == 512 * 8 * (32 + 8)
    assert Floor(picked).input_bytes(picked.inputs[0]) == 512 * 8 * 2
    rows = read(f'{X}, i: "i64[7]"', "y = index_select(x, i, 0)")
    assert bytes_read(rows) == 7 * 4096 * 2 + 7 * 8
