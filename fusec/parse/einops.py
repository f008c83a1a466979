"""einops' `rearrange`, `reduce` and `repeat` in fusec's words: reshape, permute, a reduction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from fusec.ir.dim import Dim, dim, floordiv, product
from fusec.ir.graph import Type
from fusec.parse import frameworks
from fusec.parse.trees import CallTree, Name, String, Tree

Group = tuple[str, ...]
_PART = re.compile(r"\(([^()]*)\)|(\w+)")
REDUCTIONS = ("sum", "mean", "max", "min", "prod")


def groups_of(side: str) -> list[Group] | None:
    """Return the dims of one side of a pattern, each the names that it is made of."""
    rest = _PART.sub("", side)
    found = [tuple((a or b).split()) for a, b in _PART.findall(side)]
    return None if rest.strip() or any("..." in g for g in found) else found


def rearranged(
    pattern: str, shape: Sequence[Dim], sizes: Mapping[str, Dim], reduction: str = ""
) -> str | None:
    """Return the expression of `x` for a pattern; None of one that has no such expression.

    sizes: the lengths of names that the call gives. reduction: of names that the right side lacks.
    """
    left, arrow, right = pattern.partition("->")
    before, after = groups_of(left), groups_of(right)
    if not arrow or before is None or after is None or len(before) != len(shape):
        return None
    known = {**sizes, "1": dim(1)}
    for group, extent in zip(before, shape, strict=True):
        unknown = [name for name in group if name not in known]
        if len(unknown) > 1:
            return None
        if unknown:
            known[unknown[0]] = floordiv(extent, product(known[n] for n in group if n in known))
    names = [name for group in before for name in group]
    wanted = [name for group in after for name in group if name != "1"]
    kept = [name for name in names if name in wanted]
    if len({*names}) < len(names) or {*wanted} - {*names}:
        return None
    text = "x"
    if any(len(group) != 1 for group in before):
        text = f"reshape({text}, {_listed(known[n] for n in names)})"
    gone = [k for k, name in enumerate(names) if name not in wanted]
    if gone and reduction in REDUCTIONS:
        text = f"{reduction}({text}, {gone})"
    elif gone and any(names[k] != "1" for k in gone):
        return None
    elif gone:
        text = f"squeeze({text}, {gone})"
    order = [kept.index(name) for name in wanted]
    if order != sorted(order):
        text = f"permute({text}, {order})"
    if any(len(group) != 1 or group == ("1",) for group in after):
        extents = (product(known[name] for name in group) for group in after)
        text = f"reshape({text}, {_listed(extents)})"
    return text if text != "x" else "set(x)"


def _listed(sizes: Iterable[Dim]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def einops(
    tree: CallTree, type_of: Callable[[Tree], Type | None], size_of: Callable[[Tree], Dim | None]
) -> Tree | None:
    """Return what `rearrange(x, 'b s (h d) -> b h s d', h=4)` is; None of what has no expression.

    type_of: the type of an operand that has a name. size_of: the size that an argument is.
    """
    plain = [a.value for a in tree.arguments if a.keyword is None]
    said = plain[1] if len(plain) > 1 else None
    type = type_of(plain[0]) if plain else None
    reduces = tree.name.text.rpartition(".")[2] == "reduce"
    how = plain[2] if reduces and len(plain) > 2 else None
    reduction = how.text if isinstance(how, (String, Name)) else ""
    shape = None if type is None else type.shape
    if not isinstance(said, String) or shape is None or len(plain) != 2 + bool(reduction):
        return None
    named = ((a.keyword.text, size_of(a.value)) for a in tree.arguments if a.keyword is not None)
    sizes = {name: size for name, size in named if size is not None}
    text = rearranged(said.text, shape, sizes, reduction)
    if text is None:
        return None
    return frameworks.substituted(frameworks.parsed(text), {"x": plain[0]}, tree)
