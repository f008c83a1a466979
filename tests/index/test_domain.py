"""Index maps against NumPy: every movement operation, and homes of values in random graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from draws import drawn
from hypothesis import HealthCheck, given, settings
from strategies import (
    IDIOMS,
    Sketch,
    draw_cast,
    draw_movement,
    draw_twin,
    fusions,
    outer_product,
    random_inputs,
    unit_reduction,
)

from fusec.index.domain import Domain, find_domain
from fusec.index.instances import Instance, Lowering
from fusec.index.movement import pull, push
from fusec.ir.access import Conditions
from fusec.ir.dim import dim
from fusec.ir.dtype import BOOL, F32, F64, I64
from fusec.ir.evaluate import constant
from fusec.ir.expression import Index, Loaded, Quotient, Var, contiguous_strides, of_var
from fusec.ir.graph import Const, Fusion, Node, Value
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.reference.evaluate import evaluate
from fusec.segment.protocol import Refusal

QUICK = settings(drawn(50), suppress_health_check=list(HealthCheck), derandomize=True)
Grid = Mapping[Var, Any]


class OnGrid:
    """Evaluates indices and instances at all points of a loop nest at once."""

    def __init__(self, fusion: Fusion, axes: tuple[Var, ...], inputs: Mapping[str, Any]) -> None:
        self.fusion, self.inputs, self.sizes = fusion, inputs, fusion.hints
        self.shape = tuple(a.extent.evaluate(self.sizes) for a in axes)
        self.grid = dict(zip(axes, np.indices(self.shape), strict=True))

    def index(self, value: Index) -> Any:
        total = np.full(self.shape, value.constant.evaluate(self.sizes))
        for atom, coefficient in value.terms:
            if isinstance(atom, Var):
                number = self.grid.get(atom, 0)
            elif isinstance(atom, Loaded):
                at = tuple(np.asarray(self.index(c)) for c in atom.coordinates)
                number = np.asarray(self.inputs[atom.tensor.name])[at]
            else:
                inner, by = self.index(atom.inner), atom.divisor.evaluate(self.sizes)
                number = inner // by if isinstance(atom, Quotient) else inner % by
            total = total + number * coefficient.evaluate(self.sizes)
        return total

    def holds(self, conditions: Conditions) -> Any:
        mask = np.ones(self.shape, bool)
        for condition in conditions:
            position = self.index(condition.position)
            low, end = (d.evaluate(self.sizes) for d in (condition.low, condition.end))
            mask &= (low <= position) & (position < end)
        return mask

    def value(self, instance: Instance) -> Any:
        """Return an instance everywhere; zeros where its conditions do not hold."""
        return getattr(self, f"_{instance.kind}")(instance)

    def _load(self, instance: Instance) -> Any:
        assert instance.address is not None
        flat = np.asarray(self.inputs[instance.name]).reshape(-1)
        address, mask = self.index(instance.address), self.holds(instance.conditions)
        assert ((address >= 0) & (address < flat.size))[mask].all(), "read outside of the tensor"
        if not flat.size:
            return np.zeros(self.shape, flat.dtype)
        return np.where(mask, flat[np.clip(address, 0, flat.size - 1)], 0)

    def _constant(self, instance: Instance) -> Any:
        return np.full(self.shape, instance.constant)

    def _dim(self, instance: Instance) -> Any:
        assert instance.dim is not None
        return np.full(self.shape, instance.dim.evaluate(self.sizes))

    def _scalar(self, instance: Instance) -> Any:
        entry = next(i for i in self.fusion.inputs if i.value.name == instance.name)
        return np.full(self.shape, entry.default)

    def _index(self, instance: Instance) -> Any:
        assert instance.address is not None
        return self.index(instance.address)

    def _select(self, instance: Instance) -> Any:
        result = self.value(instance.operands[-1])
        for operand, where in reversed(
            list(zip(instance.operands, instance.branches, strict=False))
        ):
            result = np.where(self.holds(where), self.value(operand), result)
        return result

    def _op(self, instance: Instance) -> Any:
        node = instance.node
        assert node is not None
        operands = [
            np.asarray(self.value(o)).astype(d.numpy)
            for o, d in zip(instance.operands, node.compute_dtypes, strict=True)
        ]
        result = node.op.reference(*operands, **dict(node.attributes))
        return np.asarray(result).astype(instance.dtype.numpy)


def stored(fusion: Fusion, domain: Domain, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs as a kernel over the domain stores them; -99 where it does not."""
    lowering = Lowering(fusion, domain, {a: of_var(a) for a in domain.axes})
    machine = OnGrid(fusion, domain.axes, inputs)
    results: dict[str, Any] = {}
    for output in fusion.outputs:
        shape = tuple(e.evaluate(fusion.hints) for e in output.value.shape)
        array = np.full(shape, -99, output.value.dtype.numpy)
        coordinates, conditions = lowering.home(output.value)
        mask = machine.holds(conditions)
        value = np.broadcast_to(machine.value(lowering.at_home(output.value)), machine.shape)
        at = tuple(machine.index(c)[mask] for c in coordinates)
        if at:
            array[at] = value[mask]
        elif mask.any():
            array[...] = value[mask][0]
        results[output.value.name] = array
    return results


def draw_window(sketch: Sketch) -> None:
    kinds = [k for k in IDIOMS if k not in (outer_product, unit_reduction)]
    sketch.keep(sketch.pick(kinds)(sketch, sketch.tensor(1)))


STEPS = (draw_movement, draw_movement, draw_window, draw_twin, draw_cast)


@QUICK
@given(fusions(dtypes=(F64, F64, I64), steps=STEPS, max_steps=7))
@pytest.mark.nightly
def test_a_kernel_over_the_domain_computes_the_fusion(fusion: Fusion) -> None:
    domain = find_domain(fusion)
    if isinstance(domain, Refusal) or any(n.op.family == "reduction" for n in fusion.nodes):
        return
    inputs = random_inputs(fusion)
    expected = evaluate(fusion, inputs, fusion.hints)
    for name, array in stored(fusion, domain, inputs).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@QUICK
@given(fusions(dtypes=(F64, I64), steps=STEPS, max_steps=5))
def test_homes_are_elements_of_their_values(fusion: Fusion) -> None:
    """Every home lies inside its value wherever its conditions hold."""
    domain = find_domain(fusion)
    if isinstance(domain, Refusal):
        return
    machine = OnGrid(fusion, domain.axes, {})
    for value, home in domain.homes.items():
        mask = machine.holds(home.conditions)
        for coordinate, extent in zip(home.coordinates, value.shape, strict=True):
            at = machine.index(coordinate)[mask]
            assert (at >= 0).all()
            assert (at < extent.evaluate(fusion.hints)).all(), f"{value.name} at {coordinate}"


def one_node(op: str, shape: tuple[int, ...], /, **attributes: Any) -> tuple[Fusion, Node]:
    builder = GraphBuilder("one")
    x = builder.input("x", F32, shape)
    builder.output(builder.apply(op, x, **attributes))
    fusion = builder.finish()
    return fusion, fusion.nodes[-1]


CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("set", (3, 4), {}),
    ("broadcast", (3, 4), {"is_broadcast_dim": [True, False, True, False]}),
    ("broadcast_in_dim", (3, 1), {"shape": [2, 3, 5], "broadcast_dims": [1, 2]}),
    ("expand", (3, 1), {"shape": [2, 3, 6]}),
    ("squeeze", (3, 1, 4, 1), {"dims": [1, 3]}),
    ("reshape", (3, 4), {"new_shape": [2, 6]}),
    ("reshape", (2, 3, 4), {"new_shape": [2, 12]}),
    ("reshape", (6, 10), {"new_shape": [4, 15]}),
    ("permute", (2, 3, 4), {"dims": [2, 0, 1]}),
    ("slice", (7, 9), {"start_indices": [1, 2], "end_indices": [6, 9], "strides": [2, 3]}),
    ("slice", (7, 9), {"start_indices": [1, 2], "end_indices": [6, 9]}),
    ("pad", (3, 4), {"pad_widths": [1, 2, 3, 0]}),
    ("pad", (5, 6), {"pad_widths": [-1, 2, 1, -2]}),
    ("flip", (3, 4), {"dims": [1]}),
    ("flip", (3, 4), {"dims": [0, 1]}),
]


def ids(case: tuple[str, tuple[int, ...], dict[str, Any]]) -> str:
    return f"{case[0]}-{'x'.join(map(str, case[1]))}-{list(case[2].values())}"


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_pulls_are_what_numpy_does(case: tuple[str, tuple[int, ...], dict[str, Any]]) -> None:
    op, shape, attributes = case
    fusion, node = one_node(op, shape, **attributes)
    x = np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)
    expected = next(iter(evaluate(fusion, {"x": x}, {}).values()))
    axes = tuple(Var(f"i{k}", e) for k, e in enumerate(node.output.shape))
    machine = OnGrid(fusion, axes, {"x": x})
    pulled = pull(node, tuple(of_var(a) for a in axes))
    found = np.full(expected.shape, np.nan)
    if pulled.fill is not None:
        assert isinstance(pulled.fill, Const)
        found[...] = constant(pulled.fill)
    for branch in pulled.branches:
        mask = machine.holds(branch.conditions)
        found[mask] = x[tuple(machine.index(c)[mask] for c in branch.coordinates)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_pushes_reach_what_pulls_read(case: tuple[str, tuple[int, ...], dict[str, Any]]) -> None:
    """Where an element of the operand lands in the result, the result holds that element."""
    op, shape, attributes = case
    fusion, node = one_node(op, shape, **attributes)
    axes = tuple(Var(f"i{k}", dim(e)) for k, e in enumerate(shape))
    pushed = push(node, tuple(of_var(a) for a in axes), 0)
    if pushed is None:
        assert op in ("slice", "pad", "broadcast_in_dim", "expand")
        return
    x = np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)
    expected = next(iter(evaluate(fusion, {"x": x}, {}).values()))
    machine = OnGrid(fusion, axes, {"x": x})
    mask = machine.holds(pushed.conditions)
    at = tuple(machine.index(c)[mask] for c in pushed.coordinates)
    np.testing.assert_array_equal(expected[at], x[mask])
    reached = np.zeros(expected.shape, bool)
    reached[at] = True
    if pushed.complete:
        assert reached.all(), "the push claims to reach every element"


def test_cats_are_pulled_piece_by_piece() -> None:
    builder = GraphBuilder("joined")
    arrays = {
        f"x{k}": np.arange(3 * n, dtype=np.float32).reshape(3, n) + 100 * k
        for k, n in enumerate((2, 0, 4, 1))
    }
    pieces = [builder.input(n, F32, a.shape) for n, a in arrays.items()]
    builder.output(builder.apply("cat", pieces, dim=1))
    fusion = builder.finish()
    domain = find_domain(fusion)
    assert isinstance(domain, Domain)
    (found,) = stored(fusion, domain, arrays).values()
    np.testing.assert_array_equal(found, np.concatenate(list(arrays.values()), axis=1))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    "op", ["index_select", "gather", "take_along_axis", "select", "embedding_fwd"]
)
def test_indexing_reads_where_the_integers_say(op: str, axis: int) -> None:
    rng = np.random.default_rng(axis)
    source = rng.normal(size=(4, 5, 6)).astype(np.float32)
    shape: tuple[int, ...] = (3,) if op == "index_select" else () if op == "select" else (4, 5, 6)
    if op in ("gather", "take_along_axis"):
        shape = tuple(2 if k == axis else e for k, e in enumerate(shape))
    if op == "embedding_fwd":
        if axis:
            return  # it always takes rows
        source, shape = source[0], (3, 2)
    extent = source.shape[axis]
    chosen = rng.integers(0, extent, shape)
    builder = GraphBuilder("indexed")
    x, i = builder.input("x", F32, source.shape), builder.input("i", I64, shape)
    result = builder.apply(op, i, x) if op == "embedding_fwd" else builder.apply(op, x, i, dim=axis)
    builder.output(builder.apply("neg", result))
    fusion = builder.finish()
    domain = find_domain(fusion)
    assert isinstance(domain, Domain)
    inputs = {"x": source, "i": chosen}
    expected = next(iter(evaluate(fusion, inputs, {}).values()))
    np.testing.assert_array_equal(next(iter(stored(fusion, domain, inputs).values())), expected)


def test_every_movement_operation_is_tested_here() -> None:
    indexing = {"index_select", "select", "gather", "take_along_axis", "embedding_fwd"}
    assert {c[0] for c in CASES} | indexing | {"cat", "segment_set", "update_slice"} == {
        o.name for o in TABLE.values() if o.access is not None
    }


def norm(keepdim: bool) -> Fusion:
    builder = GraphBuilder("norm")
    x = builder.input("x", F32, [builder.declare_dim("B", 4), builder.declare_dim("H", 6)])
    mean = builder.apply("mean", x, dims=[1], keepdim=keepdim)
    builder.output(builder.apply("sub", x, mean) if keepdim else mean)
    return builder.finish()


def test_a_reduction_reduces_axes_of_the_domain() -> None:
    fusion = norm(keepdim=True)
    domain = find_domain(fusion)
    assert isinstance(domain, Domain)
    (reduced,) = domain.reduced.values()
    assert [str(a.extent) for a in reduced] == ["H"]
    total = next(n.output for n in fusion.nodes if n.op.family == "reduction")
    assert domain.homes[total].coordinates == (of_var(domain.axes[0]),)


def refusal_of(fusion: Fusion) -> Refusal:
    found = find_domain(fusion)
    assert isinstance(found, Refusal)
    return found


@pytest.mark.parametrize("op", ["sum", "prod", "var"])
@pytest.mark.parametrize("along", [0, 1])
def test_elements_that_a_domain_repeats_are_reduced_apart(op: str, along: int) -> None:
    """A sum over the repeated elements cannot be made beside a sum over those that there are."""
    builder = GraphBuilder("repeated")
    x = builder.input("x", F32, [6])
    shape = [6, 2] if along else [2, 6]
    wide = builder.apply("broadcast_in_dim", x, shape=shape, broadcast_dims=[1 - along])
    twice = builder.apply("reshape", wide, new_shape=[12])
    builder.output(builder.apply(op, x, dims=[0]))
    builder.output(builder.apply("sum", twice, dims=[0]))
    refusal_of(builder.finish())


def test_two_domains_are_refused() -> None:
    builder = GraphBuilder("apart")
    x, y = builder.input("x", F32, [4, 5]), builder.input("y", F32, [7])
    builder.output(builder.apply("exp", x))
    builder.output(builder.apply("exp", y))
    assert refusal_of(builder.finish()).rule == "domain"


def test_a_sum_of_a_sum_over_another_axis_is_refused_by_no_wrong_home() -> None:
    """Sums over rows and over columns share the domain and reduce different axes of it."""
    builder = GraphBuilder("both")
    x = builder.input("x", F32, [4, 5])
    builder.output(builder.apply("sum", x, dims=[0]))
    builder.output(builder.apply("sum", x, dims=[1]))
    domain = find_domain(builder.finish())
    assert isinstance(domain, Domain)
    assert sorted(sorted(a.name for a in axes) for axes in domain.reduced.values()) == [
        ["i0"],
        ["i1"],
    ]


def test_addresses_of_homes() -> None:
    builder = GraphBuilder("addressed")
    x = builder.input("x", BOOL, [4, 5])
    builder.output(builder.apply("permute", builder.apply("logical_not", x), dims=[1, 0]))
    fusion = builder.finish()
    domain = find_domain(fusion)
    assert isinstance(domain, Domain)
    lowering = Lowering(fusion, domain, {a: of_var(a) for a in domain.axes})
    value: Value = fusion.outputs[0].value
    rows, columns = (of_var(a) for a in domain.axes)
    assert lowering.address(value, contiguous_strides(value.shape)) == rows * 4 + columns
    assert lowering.address(x, contiguous_strides(x.shape)) == columns * 5 + rows


@QUICK
@given(fusions())
def test_no_other_value_has_a_domain_where_none_is_found(fusion: Fusion) -> None:
    if isinstance(find_domain(fusion), Domain):
        return
    reductions = [n.inputs[0] for n in fusion.nodes if n.op.family == "reduction"]
    for value in reductions or [v for v in fusion.values if not v.is_scalar]:
        assert not isinstance(find_domain(fusion, value), Domain), value
