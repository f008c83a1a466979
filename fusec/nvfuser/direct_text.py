"""The text of nvFuser's direct API: the graph that calls built, not the calls themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusec.ir.dim import Dim
from fusec.ir.graph import Value
from fusec.ir.op import OpDef
from fusec.nvfuser.text import Calls
from fusec.ops import find_op
from fusec.parse.dsl.handles import Handle, Tensor, Vector
from fusec.parse.dsl.lists import is_list


class DirectCalls(Calls):
    """The calls of one definition, normalized, and printed in the order that outputs need."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Name values as `Calls` does."""
        super().__init__(*args, **options)
        self._used: list[Any] = []
        self._uses: list[list[Any]] = []
        self._maker: dict[Any, int] = {}
        self._draws = False

    def take(self, text: Callable[[Any], str | None], run: Callable[[], Any]) -> Any:
        """Run a call, and record the values that its line reads and defines."""
        if self._inside:
            return run()
        self._used = []
        result = super().take(text, run)
        if len(self.lines) > len(self._uses):
            self._uses.append(self._used)
            self._maker.update((made, len(self._uses) - 1) for made in _handles(result))
        return result

    def printed(self) -> list[str]:
        """Return inputs, then what each output needs, then unused values, then the outputs."""
        if self._draws:
            return self.lines  # each random call takes the generator's next numbers
        outputs = [k for k, line in enumerate(self.lines) if line.startswith("fd.add_output(")]
        inputs = (k for k, uses in enumerate(self._uses) if not uses and _is_input(self.lines[k]))
        order = dict.fromkeys(inputs)
        for root in (*outputs, *range(len(self.lines))):
            self._order_below(root, order, outputs)
        return [self.lines[k] for k in (*order, *outputs)]

    def _order_below(self, root: int, order: dict[int, None], outputs: Sequence[int]) -> None:
        """Add the lines that a line needs in order of dependence, then that line."""
        waiting = [root]
        while waiting:
            line = waiting[-1]
            missing = [m for m in map(self._maker.get, self._uses[line])
                       if m is not None and m not in order]  # fmt: skip
            if missing:
                waiting.append(missing[0])
                continue
            waiting.pop()
            if line not in outputs:
                order[line] = None

    def _call(self, op: OpDef, named: dict[str, Any], result: Any) -> str:
        self._draws = self._draws or op.family == "random" or "rng_seed" in (
            p.name for p in op.params
        )  # fmt: skip
        arg = named.get(op.params[0].name) if op.params else None
        if isinstance(arg, Tensor) and isinstance(result, Tensor) and _is_known(arg, result):
            op, named = _normalised(op, named, arg, result)
        return super()._call(op, named, result)

    def _handle(self, handle: Handle) -> str:
        if handle in self._names:
            self._used.append(handle)
        return super()._handle(handle)


def _is_input(line: str) -> bool:
    call = line.partition(" = ")[2]
    return call.startswith(("fd.define_tensor(", "fd.define_scalar(None", "fd.define_vector("))


def _handles(made: Any) -> list[Any]:
    if isinstance(made, Vector):
        return list(made.elements)
    if isinstance(made, tuple):
        parts: tuple[Any, ...] = made  # pyright: ignore[reportUnknownVariableType]
        return [handle for part in parts for handle in _handles(part)]
    return [made] if isinstance(made, Handle) else []


def _is_known(*tensors: Tensor) -> bool:
    return all(t.definition.knows(t) for t in tensors)


def keeps_all_dims(op: OpDef, given: Mapping[str, Any], operands: Sequence[Any]) -> bool:
    """Return whether a call is a `broadcast_in_dim` that maps each dim to itself: `expand`."""
    if op.name != "broadcast_in_dim" or not isinstance(operands[0], Value):
        return False
    places, rank = given["broadcast_dims"], len(given["shape"])
    whole = _are_ints(places) and [p + rank * (p < 0) for p in places] == list(range(rank))
    return whole and operands[0].rank == rank


def _normalised(
    op: OpDef, named: dict[str, Any], arg: Tensor, result: Tensor
) -> tuple[OpDef, dict[str, Any]]:
    """Return a call in the form that it has in nvFuser's own graph."""
    shape = arg.operand.type.shape or ()
    for p in op.params:
        dims: Any = named.get(p.name)
        if p.kind == "dims" and shape and _are_ints(dims):
            named[p.name] = [d % len(shape) for d in dims]
    if op.family == "reduction" and "dtype" in (p.name for p in op.params):
        return _reduction(op, named, shape, arg, result)
    if keeps_all_dims(op, named, [arg.operand]):
        return find_op("expand"), {"arg": arg, "shape": named["shape"]}
    if op.name == "slice" and _lies_within(named, shape):
        named["manual_normalization"] = True
    return op, named


def _reduction(
    op: OpDef, named: dict[str, Any], shape: Sequence[Dim], arg: Tensor, result: Tensor
) -> tuple[OpDef, dict[str, Any]]:
    """Return a reduction with its dims and type; for dims of extent 1 it takes only the dims."""
    dims = named.get("dims")
    dims = list(range(len(shape))) if dims is None else dims
    dtype = result.operand.type.dtype
    if (
        _are_ints(dims)
        and all(shape[d] == 1 for d in dims)
        and not named.get("keepdim")
        and dtype == arg.operand.type.dtype
    ):
        return find_op("squeeze"), {"arg": arg, "dims": dims}
    return op, {**named, "dims": dims, "dtype": dtype}


def _are_ints(values: Any) -> bool:
    return is_list(values) and all(type(v) is int for v in values)


def _lies_within(named: dict[str, Any], shape: Sequence[Dim]) -> bool:
    """Return whether a slice's constant bounds count from the start of known extents."""
    starts, ends = named["start_indices"], named["end_indices"]
    return _are_ints(starts) and _are_ints(ends) and all(
        extent.is_const and 0 <= start <= end <= extent.value
        for start, end, extent in zip(starts, ends, shape, strict=False)
    )  # fmt: skip
