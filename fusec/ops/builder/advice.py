"""Suggested fixes for invalid calls, in the terms of the call as it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, permutations
from typing import Any, cast

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError, Instead
from fusec.ir.dim import Call, Dim, Shape, dim, minimum, product, symbol
from fusec.ir.dtype import DType
from fusec.ir.graph import Const, DimFact, Operand, Value
from fusec.ir.op import OpDef
from fusec.ops.builder.arguments import canonical_attribute
from fusec.ops.builder.wording import Wording, equating
from fusec.ops.shapes import Unequal

_MOST_PERMUTED = 4
"""Dims up to which orders of dims are tried."""


@dataclass(frozen=True)
class Dropped:
    """The dims that an operation reduced without keepdim, in a tensor of some rank."""

    op: str
    dims: tuple[int, ...]
    rank: int

    def kept(self, shape: Shape) -> Shape:
        """Return the shape of the result if the dims had been kept."""
        left = iter(shape)
        return tuple(dim(1) if axis in self.dims else next(left) for axis in range(self.rank))


def searched(error: FusecError, search: Callable[[], FusecError]) -> FusecError:
    """Return the error with advice from `search`; if the search fails, a note says so."""
    try:
        return search()
    except Exception as failed:
        why = f"no advice, as fusec failed to find it: {type(failed).__name__}: {failed}"
        return error.changed(notes=[*error.diagnostic.notes, why])


def dropped_of(
    op: OpDef,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    results: Iterable[Value],
) -> Iterator[tuple[Value, Dropped]]:
    """Yield the results of a call that reduces dims without keepdim, with these dims."""
    first = operands[0] if operands else None
    params = {p.name: p for p in op.params}
    reduces = {"dims", "keepdim"} <= params.keys() and not attributes.get("keepdim")
    if reduces and isinstance(first, Value) and first.type.shape is not None:
        param = params["dims"]
        dims = canonical_attribute(op, param, attributes.get("dims", param.default), [first])
        for value in results:
            yield value, Dropped(op.name, dims, len(first.type.shape))


def advised(
    error: FusecError,
    given: Mapping[str, Any],
    dropped: Mapping[str, Dropped],
    declared: Sequence[Value],
    dims: Mapping[str, DimFact],
    words: Wording,
) -> FusecError:
    """Return an error about operands that do not broadcast, with a suggested fix if one is known.

    given: the operands by their parameters. dropped: the reduction that produced a value, by the
    value's name. declared: the inputs. dims: the dims, and words: how these are declared.
    """
    values: dict[str, Value] = {
        name: o for name, o in given.items() if isinstance(o, Value) and o.type.shape
    }
    help = advice([*values.values()], dropped)
    hints = {name: fact.default for name, fact in dims.items()}
    help = help or _of_defaults([*values.values()], declared, hints, words)
    help = help or _of_quotients([*values.values()], dims, words)
    help = help or _of_minima([*values.values()], hints, words)
    help = help or _of_equal_defaults([*values.values()], hints, words)
    if help:
        return error.changed(help=help)
    instead = _in_order(values) or _with_rank(values) or _repeated(values, dims, words)
    return error if instead is None else error.changed(instead=instead)


def _of_defaults(
    values: Sequence[Value],
    declared: Sequence[Value],
    hints: Mapping[str, int],
    words: Wording,
) -> str | None:
    """Return how to declare an input with a numeric extent that equals a dim only by default."""
    for value in values:
        for other in values if value in declared else ():
            for axis in range(-min(value.rank, other.rank), 0):
                number, size = value.shape[axis], other.shape[axis]
                if not number.is_const or number == 1 or size.is_const:
                    continue
                if size.evaluate(hints) == number.value:
                    line = words.input(value, _sizes(value, axis, str(size)))
                    why = f"{number} equals {size} only at the default sizes"
                    return f"{why}: write {line}"
    return None


def _of_minima(values: Sequence[Value], hints: Mapping[str, int], words: Wording) -> str | None:
    """Return how to declare a dim that is never less than the extent of its slice."""
    for left, right in permutations(values, 2):
        for axis in range(-min(left.rank, right.rank), 0):
            cut, wanted = left.shape[axis], right.shape[axis]
            atoms = cut.terms[0][0] if len(cut.terms) == 1 else ()
            (call,) = atoms if len(atoms) == 1 else (None,)
            if not isinstance(call, Call) or call.function != "min":
                continue
            for whole, part in ((call.left, call.right), (call.right, call.left)):
                if part == wanted and cut == minimum(part, whole) and str(whole) in hints:
                    spare = next(n for n in ("P", "R", "P_2", "P_3") if n not in hints)
                    more = max(whole.evaluate(hints) - wanted.evaluate(hints), 0)
                    why = f"a slice has {cut} elements, as dims are dynamic"
                    longer = words.sum(str(whole), wanted, spare, more)
                    return f"{why}: where {whole} is never less, {longer}"
    return None


def _of_equal_defaults(
    values: Sequence[Value], hints: Mapping[str, int], words: Wording
) -> str | None:
    """Return how to declare a dim as another one with the same default, if they must be equal."""
    order = [*hints]
    for left, right in combinations(values, 2):
        for axis in range(-min(left.rank, right.rank), 0):
            names = {str(left.shape[axis]), str(right.shape[axis])}
            if len(names) < 2 or not names <= hints.keys():
                continue
            first, second = sorted(names, key=order.index)
            if hints[first] == hints[second]:
                why = f"{first} and {second} are equal only at the default sizes"
                return f"{why}: {words.derived(second, symbol(first))}"
    return None


def _of_quotients(
    values: Sequence[Value], dims: Mapping[str, DimFact], words: Wording
) -> str | None:
    """Return how to declare a dim so that extents with quotients of it are equal."""
    for left, right in combinations(values, 2):
        for axis in range(-min(left.rank, right.rank), 0):
            one, other = left.shape[axis], right.shape[axis]
            if one == other or 1 in (one, other):
                continue
            found = equating(dims, one, other)
            if found is not None:
                return found.text(words)
    return None


def _repeated(
    values: Mapping[str, Value], dims: Mapping[str, DimFact], words: Wording
) -> Instead | None:
    """Return the call with an operand repeated that has half as many elements as another one."""
    for name, value in reversed([*values.items()]):
        for other in values.values():
            for axis in range(-min(value.rank, other.rank), 0):
                half, whole = value.shape[axis], other.shape[axis]
                found = None if half * 2 == whole else equating(dims, half * 2, whole)
                if half == whole or (half * 2 != whole and found is None):
                    continue
                return Instead(
                    arguments={name: f"cat([{{{name}}}, {{{name}}}], {axis})"},
                    why=f"one operand has half of the {whole} elements, which may be repeated",
                    declares=found,
                    also="" if found is None else found.text(words),
                )
    return None


def _in_order(values: Mapping[str, Value]) -> Instead | None:
    """Return the call with an operand whose dims are permuted, or with its missing dim."""
    for name, value in reversed([*values.items()]):
        for other in values.values():
            others = [o.shape for o in values.values() if o is not value]
            order = _order(value.type.shape, other.type.shape)
            if order is not None:
                turned = tuple(value.shape[k] for k in order)
                if all(_broadcast(turned, shape) for shape in others):
                    why = f"its dims are in another order than those of `{other.name}`"
                    if 1 in value.shape and 1 not in other.shape:
                        why = f"`{value.name}` is {value.type}: {why}"
                    permuted = f"permute({{{name}}}, {list(order)})"
                    return Instead(arguments={name: permuted}, why=why)
            for axis in range(1, other.rank) if value.rank == other.rank - 1 else ():
                kept = list(value.shape)
                kept.insert(axis, dim(1))
                rest = (*other.shape[:axis], *other.shape[axis + 1 :])
                if rest == value.shape and all(_broadcast(tuple(kept), s) for s in others):
                    why = f"dims are aligned at the last one, and `{value.name}` lacks one"
                    at = -1 if axis == other.rank - 1 else axis
                    return Instead(arguments={name: f"unsqueeze({{{name}}}, {at})"}, why=why)
    return None


def _with_rank(values: Mapping[str, Value]) -> Instead | None:
    """Return the call with an operand whose leading dims match another's, or without an extra 1."""
    for name, value in reversed([*values.items()]):
        others = [o for o in values.values() if o is not value]
        for other in others:
            lacking = other.rank - value.rank
            prefix = value.shape == other.shape[: value.rank]
            kept = (*value.shape, *[dim(1)] * lacking)
            if lacking > 1 and prefix and all(_broadcast(kept, o.shape) for o in others):
                text = f"{{{name}}}"
                for _ in range(lacking):
                    text = f"unsqueeze({text}, -1)"
                why = f"dims are aligned at the last one, and `{value.name}` lacks {lacking}"
                return Instead(arguments={name: text}, why=why)
        for axis in (k for k, size in enumerate(value.shape) if size == 1):
            rest = (*value.shape[:axis], *value.shape[axis + 1 :])
            if rest and all(_broadcast(rest, o.shape) for o in others):
                why = f"dims are aligned at the last one, and `{value.name}` has a dim too many"
                return Instead(arguments={name: f"squeeze({{{name}}}, [{axis}])"}, why=why)
    return None


def advised_of_slices(
    error: FusecError,
    values: Sequence[Value],
    cut: Mapping[str, Value],
    hints: Mapping[str, int],
    words: Wording,
) -> FusecError:
    """Return an error about operands that do not broadcast, if one is a slice of an input.

    `p[:S]` of an input [512, H] has min(S, 512) rows. cut: by an operand's name, the input that it
    is a slice of. hints: the default sizes of dims.
    """
    for value in values:
        source = cut.get(value.name)
        if source is None or source.rank != value.rank:
            continue
        for other in values:
            for axis in range(-min(value.rank, other.rank), 0):
                have, wanted = value.shape[axis], other.shape[axis]
                whole = source.shape[axis]
                if have in (wanted, 1) or wanted == 1 or have != minimum(wanted, whole):
                    continue
                return error.changed(help=_longer(source, axis, wanted, hints, words))
    return error


def _longer(source: Value, axis: int, wanted: Dim, hints: Mapping[str, int], words: Wording) -> str:
    """Return how to declare an input so that a slice of it has `wanted` elements in a dim."""
    whole, spare = source.shape[axis], next(n for n in ("P", "R", "P_2", "P_3") if n not in hints)
    more = max(whole.evaluate(hints) - wanted.evaluate(hints), 0)
    cut = f"a slice of `{source.name}` has min({wanted}, {whole}) elements, as dims are dynamic"
    if not whole.is_const:
        longer = words.sum(str(whole), wanted, spare, more)
        return f"{cut}: where {whole} is never less, {longer}"
    exact = words.input(source, _sizes(source, axis, str(wanted)))
    longer = words.input(source, _sizes(source, axis, f"{wanted} + {spare}"))
    return f"{cut}: write {exact}, or {longer} with {words.spare(spare, more)}"


def _sizes(value: Value, axis: int, extent: str) -> list[str]:
    """Return the sizes of an input with another extent in one of its dims."""
    texts = [str(size) for size in value.shape]
    texts[axis] = extent
    return texts


def advised_of_sizes(
    error: FusecError,
    x: Operand,
    shape: Shape,
    is_input: bool,
    hints: Mapping[str, int],
    words: Wording,
) -> FusecError:
    """Return the error of a reshape that changes the number of elements, but not at default sizes.

    hints: the default sizes of dims.
    """
    before, after = list(x.shape), list(shape)
    while before and after and before[0] == after[0]:
        del before[0], after[0]
    while before and after and before[-1] == after[-1]:
        del before[-1], after[-1]
    if not before or not after or any(e == -1 for e in after):
        return error
    old, new = product(before), product(after)
    if old.evaluate(hints) != new.evaluate(hints):
        return _inferred(error, shape, product(x.shape).evaluate(hints), hints)
    place = next(k for k in range(len(x.shape)) if list(x.shape[k : k + len(before)]) == before)
    why = f"{old} equals {new} only at the default sizes"
    if old.is_const and len(before) == 1 and is_input and isinstance(x, Value):
        merged = " * ".join(f"({e})" if len(e.terms) > 1 else str(e) for e in after)
        declared = words.input(x, _sizes(x, place, merged))
        return error.changed(help=f"{why}: write {declared}")
    if str(old) in hints and not new.is_const and str(old) not in new.symbols:
        later = [*hints][[*hints].index(str(old)) :]
        below = [name for name in later if name in new.symbols]
        return error.changed(help=f"{why}: {words.derived(str(old), new, ''.join(below[-1:]))}")
    known = [k for k, e in enumerate(shape) if e.is_const and e in after]
    if known and not old.is_const:
        texts = ["-1" if k == known[-1] else str(e) for k, e in enumerate(shape)]
        return error.changed(
            instead=Instead(arguments={"new_shape": f"[{', '.join(texts)}]"}, why=why)
        )
    if old.is_const and str(new) in hints and len(before) > 1:
        last = before[-1]
        declared = f"`{new}: {{default: {old}, multiple_of: {old // last}}}`"
        why += f": `{new} // {old // last}` for the last {last}, and {declared} under `dims:`,"
        why += " make it so at all sizes"
    return error.changed(help=why)


def _inferred(error: FusecError, shape: Shape, count: int, hints: Mapping[str, int]) -> FusecError:
    """Return the error of a reshape of `count` elements with the last extent that may be -1."""
    for place in reversed(range(len(shape))):
        rest = product(e for k, e in enumerate(shape) if k != place).evaluate(hints)
        if shape[place].is_const and rest and count % rest == 0:
            texts = ["-1" if k == place else str(e) for k, e in enumerate(shape)]
            why = f"-1 is the extent that is left, {count // rest}"
            instead = Instead(arguments={"new_shape": f"[{', '.join(texts)}]"}, why=why)
            return error.changed(instead=instead)
    return error


def in_terms_of(error: FusecError, op: OpDef, given: Mapping[str, Any]) -> FusecError:
    """Return an error of an inner call as one of the operation that makes the call.

    given: the operands of the operation by its parameters.
    """
    message = f"`{op.name}`: {error.cause}"
    if isinstance(error, Unequal):
        message = f"operands of `{op.name}` do not broadcast"
    instead = None if error.instead is None else _handed_on(error.instead, error.given, given)
    return error.changed(message, span=None, notes=error.facts, instead=instead)


def _handed_on(
    instead: Instead, inner: Mapping[str, Any], outer: Mapping[str, Any]
) -> Instead | None:
    """Return the fix of an inner call in the parameters of the outer one, for the same operands."""
    names = {
        param: next((name for name, v in outer.items() if v is not None and v is value), "")
        for param, value in inner.items()
    }
    if instead.text or not all(names.get(param) for param in instead.arguments):
        return None
    places = {param: f"{{{name}}}" for param, name in names.items()}
    changed = {names[p]: text.format_map(places) for p, text in instead.arguments.items()}
    return replace(instead, arguments=changed)


def written(
    op: OpDef, instead: Instead, operands: Sequence[Any], attributes: Mapping[str, Any]
) -> str:
    """Return the replacement of a call, with the names of its operands."""
    return written_with(op, instead, _texts(op, operands, attributes))


def written_with(op: OpDef, instead: Instead, texts: Mapping[str, str]) -> str:
    """Return the replacement of a call; texts: its arguments, by the names of `Instead`."""
    filled = {name: text.format_map(texts) for name, text in instead.arguments.items()}
    if instead.text:
        return instead.text.format_map({**texts, **filled})
    given = {p.name: texts[p.name] for p in op.params if p.name in texts} | filled
    words = [t if p.is_operand else f"{p.name}={t}" for p in op.params
             if (t := given.get(p.name)) is not None]  # fmt: skip
    return f"{op.name}({', '.join(words)})"


def _texts(op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of a call as text, by the names that `Instead` has for them."""
    texts = {name: _text(value) for name, value in attributes.items() if value is not None}
    for param, value in zip(op.operands, operands, strict=False):
        if isinstance(value, (list, tuple)):
            items = [_text(v) for v in cast("Sequence[Any]", value)]
            texts |= {f"{param.name}_{k}": text for k, text in enumerate(items)}
            texts[param.name] = f"[{', '.join(items)}]"
        elif value is not None and value is not param.default:
            texts[param.name] = _text(value)
    return texts


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(v) for v in cast('Sequence[Any]', value))}]"
    if isinstance(value, Const):
        value = value.value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, (Value, DType)) else str(value)


def advice(values: Sequence[Value], dropped: Mapping[str, Dropped]) -> str | None:
    """Return a fix for operands that do not broadcast; None if none is known.

    dropped: the reduction that produced a value, by the value's name.
    """
    for value in values:
        others = [o.type.shape for o in values if o is not value]
        if value.type.shape is None or any(shape is None for shape in others):
            continue
        shapes = [shape for shape in others if shape is not None]
        known = dropped.get(value.name)
        if known is not None and len(known.dims) == known.rank - len(value.type.shape):
            kept = known.kept(value.type.shape)
            if all(_broadcast(kept, shape) for shape in shapes):
                which = ", ".join(map(str, known.dims))
                many = "s" * (len(known.dims) > 1)
                kept_by = f"`{known.op}(..., keepdim=True)` keeps dim{many} {which}"
                return f"{kept_by}, so that `{value.name}` broadcasts"
    return None


def _broadcast(left: Shape, right: Shape) -> bool:
    pairs = zip(reversed(left), reversed(right), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def _order(shape: Shape | None, wanted: Shape | None) -> tuple[int, ...] | None:
    """Return the permutation of dims that makes a shape broadcast to another one, or None."""
    if shape is None or wanted is None or len(shape) != len(wanted) or shape == wanted:
        return None
    if not 1 < len(shape) <= _MOST_PERMUTED:
        return None
    orders = permutations(range(len(shape)))
    return next((o for o in orders if _broadcast(tuple(shape[k] for k in o), wanted)), None)
