"""Random well-formed fusions, drawn from the op table, with inputs for them.

`fusions()` draws operations by family, and idioms: short chains that passes look for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from fusec.diagnostics import FusecError
from fusec.ir.annotations import Pin
from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, DType
from fusec.ir.graph import Fusion, Input, Value
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder

Draw = Callable[[st.SearchStrategy[Any]], Any]

SIZES = {"A": 3, "B": 4, "C": 2}
FLOATS = (F32, BF16, F16, F64)
INTEGERS = (I32, I64, I16, I8, U8)
CONSTANTS = (0.0, 1.0, -1.0, 2.0, 0.5, 0, 1, 3)

ELEMENTWISE = tuple(n for n, op in TABLE.items() if op.family == "pointwise" and n != "cast")
REDUCTIONS = tuple(n for n, op in TABLE.items() if op.family == "reduction")


def _print(fusion: Fusion, printer: Any, cycle: bool) -> None:
    printer.text("\n".join(repr(item) for item in (*fusion.inputs, *fusion.nodes, *fusion.outputs)))


# Hypothesis prints a failing example field by field, which nobody can read.
Fusion._repr_pretty_ = _print  # type: ignore[attr-defined]


class Sketch:
    """A fusion being drawn: the builder, the tensors so far and the source of choices."""

    def __init__(self, draw: Draw, dtypes: Sequence[DType]) -> None:
        self.draw = draw
        self.dtypes = tuple(dtypes)
        self.builder = GraphBuilder("random")
        self.dims = [self.builder.declare_dim(n, size) for n, size in SIZES.items()]
        self.tensors: list[Value] = []
        self.scalars: list[Value] = []

    def pick(self, items: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(items)))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def count(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def tensor(self, least_rank: int = 0) -> Value:
        """Return a tensor of at least some rank; the latest ones are the likeliest."""
        fit = [t for t in self.tensors if t.rank >= least_rank]
        if not fit:
            raise FusecError("no tensor of that rank")
        return self.pick(fit[-3:] if self.flag() else fit)

    def extent(self) -> Dim:
        return self.pick([*self.dims, dim(1), dim(1), dim(2)])

    def subset(self, items: Sequence[int], least: int = 0) -> list[int]:
        chosen = [i for i in items if self.flag()]
        return chosen if len(chosen) >= least else list(items[:least])

    def apply(self, op: str, *operands: Any, **attributes: Any) -> Value:
        result = self.call(op, list(operands), attributes)[0]
        assert isinstance(result, Value)
        return result

    def call(self, op: str, operands: list[Any], attributes: dict[str, Any]) -> tuple[Any, ...]:
        return self.builder.call(op, operands, attributes)

    def keep(self, *values: Any) -> None:
        for value in values:
            if isinstance(value, Value):
                (self.scalars if value.is_scalar else self.tensors).append(value)


def draw_inputs(sketch: Sketch) -> None:
    shapes: list[tuple[Dim, ...]] = []
    for k in range(sketch.count(1, 3)):
        reused = shapes and sketch.flag()
        shape = shapes[0] if reused else tuple(sketch.extent() for _ in range(sketch.count(0, 3)))
        shapes.append(shape)
        sketch.keep(sketch.builder.input(f"x{k}", sketch.pick(sketch.dtypes), shape))
    sketch.keep(sketch.builder.input("eps", F32, None, default=0.25))
    sketch.keep(sketch.builder.input("n", I64, None, default=3))


# -- one operation of a family


def draw_elementwise(sketch: Sketch) -> None:
    op = TABLE[sketch.pick(ELEMENTWISE)]
    first = sketch.tensor()
    others = [t for t in sketch.tensors if t.shape == first.shape or t.rank < first.rank]
    operands: list[Any] = []
    for k, param in enumerate(op.operands):
        if param.kind == "operand" and (k == 0 or sketch.flag()):
            operands.append(first if k == 0 else sketch.pick(others))
        elif sketch.scalars and sketch.count(0, 3) == 0:
            operands.append(sketch.pick(sketch.scalars))
        else:
            operands.append(sketch.pick(CONSTANTS))
    if op.name == "where" and first.dtype != BOOL:
        operands[0] = sketch.apply("gt", first, 0)
    sketch.keep(*sketch.call(op.name, operands, {}))


def draw_scalar(sketch: Sketch) -> None:
    op = sketch.pick(("add", "mul", "sub", "truediv", "cast", "size"))
    left = sketch.pick([*sketch.scalars, *CONSTANTS])
    if op == "cast":
        sketch.keep(*sketch.call("cast", [left], {"dtype": sketch.pick((F32, F64, I64))}))
    elif op == "size":
        tensor = sketch.tensor(1)
        axis = sketch.count(0, tensor.rank - 1)
        sketch.keep(*sketch.call("size", [tensor], {"dim": axis}))
    else:
        sketch.keep(*sketch.call(op, [left, sketch.pick([*sketch.scalars, *CONSTANTS])], {}))


def draw_cast(sketch: Sketch) -> None:
    sketch.keep(sketch.apply("cast", sketch.tensor(), dtype=sketch.pick(sketch.dtypes)))


def draw_reduction(sketch: Sketch) -> None:
    tensor = sketch.tensor(1)
    op = sketch.pick(REDUCTIONS)
    attributes: dict[str, Any] = {"dims": sketch.subset(range(tensor.rank), 1)}
    if any(p.name == "keepdim" for p in TABLE[op].params):
        attributes["keepdim"] = sketch.flag()
    sketch.keep(*sketch.call(op, [tensor], attributes))


def draw_movement(sketch: Sketch) -> None:
    sketch.keep(sketch.pick(MOVEMENTS)(sketch, sketch.tensor()))


def draw_product(sketch: Sketch) -> None:
    left = sketch.tensor(1)
    fit = [t for t in sketch.tensors if t.rank and t.dtype == left.dtype]
    right = sketch.pick(fit)
    if left.shape[-1] != right.shape[-1 if right.rank == 1 else -2]:
        order = list(range(left.rank))
        right = left if left.rank == 1 else sketch.apply(
            "permute", left, dims=[*order[:-2], order[-1], order[-2]]
        )  # fmt: skip
    result = sketch.apply("matmul", left, right)
    # The sign of a zero sum is nobody's promise, and 1 / x would show it.
    sketch.keep(sketch.apply("add", result, 0.0 if result.dtype.is_float else 0))


def broadcast(sketch: Sketch, x: Value) -> Value:
    mask = [False] * x.rank
    for _ in range(sketch.count(0, 2)):
        mask.insert(sketch.count(0, len(mask)), True)
    return sketch.apply("broadcast", x, is_broadcast_dim=mask)


def broadcast_in_dim(sketch: Sketch, x: Value) -> Value:
    places: list[int] = []
    shape: list[Dim] = []
    for extent in x.shape:
        if sketch.flag():
            shape.append(sketch.extent())
        places.append(len(shape))
        shape.append(sketch.extent() if extent == 1 and sketch.flag() else extent)
    return sketch.apply("broadcast_in_dim", x, shape=shape, broadcast_dims=places)


def expand(sketch: Sketch, x: Value) -> Value:
    kept = [sketch.extent() if e == 1 and sketch.flag() else e for e in x.shape]
    new = [sketch.extent() for _ in range(sketch.count(0, 1))]
    return sketch.apply("expand", x, shape=[*new, *kept])


def squeeze(sketch: Sketch, x: Value) -> Value:
    unit = [axis for axis, extent in enumerate(x.shape) if extent == 1]
    return sketch.apply("squeeze", x, dims=sketch.subset(unit))


def permute(sketch: Sketch, x: Value) -> Value:
    return sketch.apply("permute", x, dims=sketch.draw(st.permutations(range(x.rank))))


def reshape(sketch: Sketch, x: Value) -> Value:
    shape = list(x.shape)
    if len(shape) > 1 and sketch.flag():
        at = sketch.count(0, len(shape) - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    else:
        shape.insert(sketch.count(0, len(shape)), dim(1))
    return sketch.apply("reshape", x, new_shape=shape)


def slice_(sketch: Sketch, x: Value) -> Value:
    starts = [sketch.count(0, 1) for _ in x.shape]
    ends = [sketch.pick([e, e, e - 1]) for e in x.shape]
    steps = [sketch.pick([1, 1, 1, 2]) for _ in x.shape]
    return sketch.apply("slice", x, start_indices=starts, end_indices=ends, strides=steps)


def pad(sketch: Sketch, x: Value) -> Value:
    x = x if x.rank else sketch.tensor(1)
    widths = [sketch.pick([0, 0, 1, 2]) for _ in range(2 * x.rank)]
    return sketch.apply("pad", x, sketch.pick([0, 0, 1]), pad_widths=widths)


def cat(sketch: Sketch, x: Value) -> Value:
    fit = [t for t in sketch.tensors if t.shape == x.shape and t.dtype == x.dtype]
    pieces = [x, *(sketch.pick(fit) for _ in range(sketch.count(0, 2)))]
    return sketch.apply("cat", pieces, dim=sketch.count(0, max(x.rank - 1, 0)))


def copy(sketch: Sketch, x: Value) -> Value:
    return sketch.apply(sketch.pick(["set", "segment_set"]), x)


# -- idioms


def split_and_join(sketch: Sketch, x: Value) -> Value:
    """Cut a tensor into neighbouring slices and put them together, in order or not."""
    axis = sketch.count(0, x.rank - 1)
    full = [(dim(0), e) for e in x.shape]
    pieces: list[Value] = []
    for bounds in ((dim(0), dim(1)), (dim(1), x.shape[axis])):
        ranges = [*full[:axis], bounds, *full[axis + 1 :]]
        starts, ends = zip(*ranges, strict=True)
        pieces.append(sketch.apply("slice", x, start_indices=starts, end_indices=ends))
    if sketch.flag():
        pieces.reverse()
    if sketch.flag():
        pieces.append(x)
    return sketch.apply("cat", pieces, dim=axis)


def join_and_split(sketch: Sketch, x: Value) -> Value:
    axis = sketch.count(0, x.rank - 1)
    other = sketch.apply("neg", x) if x.dtype.is_float else x
    joined = sketch.apply("cat", [x, other, x], dim=axis)
    first = sketch.count(0, 2)
    last = sketch.count(first + 1, 3)
    starts, ends = [dim(0)] * x.rank, list(joined.shape)
    starts[axis] = x.shape[axis] * first + sketch.count(0, 1)
    ends[axis] = x.shape[axis] * last
    return sketch.apply("slice", joined, start_indices=starts, end_indices=ends)


def pad_twice(sketch: Sketch, x: Value) -> Value:
    padded = sketch.apply("pad", x, 0, pad_widths=[1, 0])
    if x.dtype.is_float:
        padded = sketch.apply(sketch.pick(["relu", "neg", "exp", "sqrt", "sin"]), padded)
    return sketch.apply("pad", padded, sketch.pick([0, 1]), pad_widths=[0, 2])


def outer_product(sketch: Sketch, x: Value) -> Value:
    column = sketch.apply("broadcast", x, is_broadcast_dim=[*[False] * x.rank, True])
    row = sketch.apply("expand", column, shape=[*x.shape[:-1], x.shape[-1], 1])
    order = [*range(x.rank - 1), x.rank, x.rank - 1]
    result = sketch.apply("matmul", column, sketch.apply("permute", row, dims=order))
    return sketch.apply("add", result, 0.0 if x.dtype.is_float else 0)


def unit_reduction(sketch: Sketch, x: Value) -> Value:
    wide = sketch.apply("broadcast", x, is_broadcast_dim=[False, True, *[False] * (x.rank - 1)])
    dims = [1, *sketch.subset([0])]
    op = sketch.pick(["sum", "prod", "max", "min", "any"])
    return sketch.apply(op, wide, dims=dims, keepdim=sketch.flag())


def round_trip(sketch: Sketch, x: Value) -> Value:
    middle = sketch.apply("cast", x, dtype=sketch.pick(sketch.dtypes))
    return sketch.apply("cast", middle, dtype=sketch.pick([x.dtype, *sketch.dtypes]))


def reshape_twice(sketch: Sketch, x: Value) -> Value:
    return reshape(sketch, reshape(sketch, x))


MOVEMENTS = (broadcast, broadcast_in_dim, expand, squeeze, permute, reshape, slice_, pad, cat, copy)
IDIOMS = (
    split_and_join, join_and_split, pad_twice, outer_product, unit_reduction, round_trip,
    reshape_twice,
)  # fmt: skip


def draw_idiom(sketch: Sketch) -> None:
    sketch.keep(sketch.pick(IDIOMS)(sketch, sketch.tensor(1)))


def draw_twin(sketch: Sketch) -> None:
    """Apply one operation twice: an expression to share."""
    tensor = sketch.tensor()
    op = sketch.pick(["neg", "abs", "add"])
    operands = [tensor, 2] if op == "add" else [tensor]
    first, second = sketch.apply(op, *operands), sketch.apply(op, *operands)
    sketch.keep(sketch.apply("mul", first, second))


STEPS = (
    draw_elementwise, draw_elementwise, draw_movement, draw_movement, draw_movement, draw_idiom,
    draw_idiom, draw_cast, draw_reduction, draw_product, draw_scalar, draw_twin,
)  # fmt: skip


@st.composite
def fusions(
    draw: Draw,
    *,
    dtypes: Sequence[DType] = (F32, BF16, F64, F16, I32, I64, U8, BOOL),
    max_steps: int = 10,
    steps: Sequence[Callable[[Sketch], None]] = STEPS,
    aliases: bool = False,
    pins: bool = False,
) -> Fusion:
    """Draw a fusion of up to `max_steps` steps; aliases: some outputs are written into inputs."""
    sketch = Sketch(draw, dtypes)
    draw_inputs(sketch)
    for _ in range(sketch.count(1, max_steps)):
        step = sketch.pick(steps)
        try:
            step(sketch)
        except FusecError:
            # What was drawn does not fit together: the tables' own rules say so.
            continue
    draw_outputs(sketch, aliases)
    try:
        fusion = sketch.builder.finish()
    except FusecError:
        reject()  # sizes that steps have left together
    return draw_pins(sketch, fusion) if pins else fusion


def draw_outputs(sketch: Sketch, aliases: bool) -> None:
    entries = [t for t in sketch.tensors if t.name.startswith("x") and t.name[1:].isdigit()]
    results = [t for t in sketch.tensors if t not in entries] or entries[:1]
    free = list(entries)
    chosen = [results[-1], *(sketch.pick(results) for _ in range(sketch.count(0, 2)))]
    for value in dict.fromkeys(chosen):
        fit = [e for e in free if e.type == value.type] if aliases else []
        target = sketch.pick(fit) if fit and sketch.flag() else None
        if target is not None:
            free.remove(target)
        sketch.builder.output(value, alias=None if target is None else target.name)


def draw_pins(sketch: Sketch, fusion: Fusion) -> Fusion:
    """Pin a run of nodes: neighbours in order never enclose a node outside."""
    from dataclasses import replace

    if not fusion.nodes:
        return fusion
    first = sketch.count(0, len(fusion.nodes) - 1)
    last = sketch.count(first, len(fusion.nodes) - 1)
    names = tuple(v.name for n in fusion.nodes[first : last + 1] for v in n.outputs)
    return replace(fusion, pins=(Pin("pinned", names),))


def random_inputs(fusion: Fusion, seed: int = 0) -> dict[str, Any]:
    """Return arrays for the inputs at the default sizes, with zeros and ones among the values."""
    generator = np.random.default_rng(seed)
    return {
        entry.value.name: _random_array(entry, fusion, generator)
        for entry in fusion.inputs
        if not entry.value.is_scalar
    }


def _random_array(entry: Input, fusion: Fusion, generator: np.random.Generator) -> Any:
    shape = tuple(d.evaluate(fusion.hints) for d in entry.value.shape)
    dtype = entry.value.dtype
    if dtype == BOOL:
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        return generator.integers(0 if dtype.kind == "uint" else -4, 6, shape).astype(dtype.numpy)
    low = -2.0 if entry.low is None else entry.low
    high = 2.0 if entry.high is None else entry.high
    values = np.asarray(generator.uniform(low, high, shape))
    special = generator.random(shape)
    values = np.where(special < 0.1, 0.0, np.where(special > 0.9, 1.0, values))
    return values.astype(dtype.numpy)
