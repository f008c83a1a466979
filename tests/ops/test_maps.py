"""Maps of movements: tried on samples when they are declared, compared with the reference here."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from declared import temporary_ops

from fusec.diagnostics import InternalError
from fusec.ir.access import Access, Branch, Condition, Coordinates, Pulled, needed, sample
from fusec.ir.dim import dim
from fusec.ir.expression import index
from fusec.ir.graph import Const, Node, Operand, Type
from fusec.ir.op import OpDef
from fusec.ops import TABLE
from fusec.ops.declare import Array, Axis, computes_in_own, movement, operation
from fusec.ops.movement import access
from fusec.ops.movement.maps import check_map, sample_node

MOVEMENTS = [op for op in TABLE.values() if op.family == "movement"]


@pytest.mark.parametrize("op", MOVEMENTS, ids=lambda op: op.name)
def test_the_map_reads_what_the_reference_has(op: OpDef) -> None:
    for each in op.samples:
        node = sample_node(op, each)
        arrays = [array(o, number) for number, o in enumerate(node.operands)]
        attributes = {k: known(v) for k, v in each.attributes.items()}
        expected = op.reference(*arrays, **attributes)
        for place in product(*map(range, expected.shape)):
            found = pulled(node, arrays, tuple(index(i) for i in place))
            assert found == expected[place], (op.name, place)


def array(operand: Operand, number: int) -> Any:
    """Return an operand of which no two elements, of no two operands, are equal."""
    if isinstance(operand, Const):
        return np.asarray(operand.value)
    shape = [e.value for e in operand.shape]
    return 100.0 * (number + 1) + np.arange(np.prod(shape, dtype=int)).reshape(shape)


def known(attribute: Any) -> Any:
    """Return an attribute with numbers for sizes."""
    if isinstance(attribute, tuple):
        return tuple(known(a) for a in attribute)
    return getattr(attribute, "value", attribute)


def pulled(node: Node, arrays: list[Any], at: Coordinates) -> Any:
    """Return the element that a map reads."""
    assert node.op.access is not None
    found = node.op.access.pull(node, at)
    by_operand = dict(zip(node.operands, arrays, strict=True))
    for branch in found.branches:
        if all(c.is_true for c in branch.conditions):
            place = tuple(c.constant.value for c in branch.coordinates)
            return by_operand[branch.operand][place]
    assert isinstance(found.fill, Const)
    return found.fill.value


def infer(operands: tuple[Operand, ...], attributes: Any) -> tuple[Type, ...]:
    return (operands[0].type,)


def declare(pull: Callable[[Node, Coordinates], Pulled], **roles: Any) -> None:
    """Declare a movement along a dim, by a map."""

    @movement(infer=infer, access=Access(pull), samples=sample("f32[2, 3]", dim=1), **roles)
    def turned(arg: Array, dim: Axis) -> Array:
        """Move elements along a dim."""
        return np.roll(arg, 1, axis=dim)


def one_on(node: Node, at: Coordinates) -> Pulled:
    """Read the element before: -1 for the first one."""
    axis: int = node.attributes["dim"]
    return Pulled((Branch(node.operands[0], (*at[:axis], at[axis] - 1, *at[axis + 1 :])),))


def wrapped_late(node: Node, at: Coordinates) -> Pulled:
    """Read the element before, and for the first one the one behind the last."""
    axis: int = node.attributes["dim"]
    extent = node.output.shape[axis]
    moved = (*at[:axis], at[axis] - 1, *at[axis + 1 :])
    around = (*at[:axis], at[axis] + extent, *at[axis + 1 :])
    first = Branch(node.operands[0], moved, needed(Condition(at[axis], dim(1), extent)))
    return Pulled((first, Branch(node.operands[0], around)))


def swap_ab(node: Node, at: Coordinates) -> Pulled:
    """Read with the coordinates of another dim."""
    return Pulled((Branch(node.operands[0], (at[1], at[0])),))


def too_few(node: Node, at: Coordinates) -> Pulled:
    """Read without a coordinate."""
    return Pulled((Branch(node.operands[0], at[1:]),))


def test_maps_of_the_package_read_inside_of_their_operands() -> None:
    for op in TABLE.values():
        check_map(op)


@pytest.mark.parametrize(
    ("pull", "where"),
    [
        (one_on, r"element \[0, 0\] of the result read `x0: f32\[2, 3\]` at -1 of its dim 1"),
        (wrapped_late, r"element \[0, 0\] of the result read `x0: f32\[2, 3\]` at 3 of its dim 1"),
        (swap_ab, r"element \[0, 2\] of the result read `x0: f32\[2, 3\]` at 2 of its dim 0"),
        (too_few, r"element \[0, 0\] of the result read 1 coordinates of `x0: f32\[2, 3\]`"),
    ],
)
def test_a_wrong_map_is_not_declared(pull: Any, where: str) -> None:
    with temporary_ops(), pytest.raises(InternalError, match=f"the map of `turned` has {where}"):
        declare(pull)
    assert "turned" not in TABLE


def test_an_index_is_read_inside_of_its_tensor() -> None:
    with temporary_ops(), pytest.raises(InternalError, match=r"read `x1: i64\[2\]` at 2 of its"):

        @operation(
            "indexing", infer=infer, compute=computes_in_own, access=access.INDEX_SELECT,
            samples=sample("f32[2, 3]", "i64[2]", dim=1),
        )  # fmt: skip
        def picked(arg: Array, index: Array, dim: Axis) -> Array:
            """Take as many elements of a dim as there are, though there are fewer indices."""
            return np.take(arg, index, axis=dim)


def test_a_map_has_samples() -> None:
    with temporary_ops(), pytest.raises(InternalError, match="no samples to try it on"):

        @operation("indexing", infer=infer, compute=computes_in_own, access=access.SET)
        def same(arg: Array) -> Array:
            """Return the operand."""
            return arg
