"""einops' `rearrange`, `reduce` and `repeat` for fusec: reshape, permute, a reduction.

Patterns are those of https://einops.rocks/api/rearrange/, including ellipses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from fusec.codes.calls import ARGUMENT_KIND
from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, dim, floordiv, product
from fusec.ir.graph import Type
from fusec.parse.foreign import frameworks
from fusec.parse.syntax.trees import CallTree, Items, Name, String, Tree

Group = tuple[str, ...]
_PART = r"\(([^()]*)\)|(\w+|\.\.\.|…)"
_DOTS = (("...",), ("…",))
REDUCTIONS = ("sum", "mean", "max", "min", "prod")
FUNCTIONS = ("rearrange", "reduce", "repeat")


class _Pattern:
    """The two sides of a pattern, and the sizes of their names."""

    def __init__(self, text: str, shape: Sequence[Dim], sizes: Mapping[str, Dim]) -> None:
        self._text = text
        left, arrow, right = text.partition("->")
        if not arrow:
            raise self.wrong("it has no `->`")
        self.before, self.after = self._groups(left, len(shape)), self._groups(right, len(shape))
        if len(self.before) != len(shape):
            raise self.wrong(f"its left side has {len(self.before)} dims, the tensor {len(shape)}")
        self.names = [name for group in self.before for name in group]
        self.wanted = [name for group in self.after for name in group if name != "1"]
        twice = [n for side in (self.names, self.wanted) for n in side if side.count(n) > 1]
        if [name for name in twice if name != "1"]:
            raise self.wrong(f"`{twice[0]}` is on one side twice")
        self.sizes = self._lengths(shape, sizes)

    def _groups(self, side: str, rank: int) -> list[Group]:
        """Return the dims of one side, each as the list of its names."""
        found = [tuple((a or b).split()) for a, b in re.findall(_PART, side)]
        if re.sub(_PART, "", side).strip():
            raise self.wrong("a dim is a name, or names in parentheses")
        left = self._text.partition("->")[0]
        own = sum((part,) not in _DOTS for _, part in re.findall(_PART, left))
        whole = [(f"_{k}",) for k in range(rank - own)]
        return [g for group in found for g in (whole if group in _DOTS else [group])]

    def _lengths(self, shape: Sequence[Dim], sizes: Mapping[str, Dim]) -> Mapping[str, Dim]:
        numbers = {n: dim(int(n)) for n in (*self.names, *self.wanted, "1") if n.isdigit()}
        known = {**sizes, **numbers}
        for group, extent in zip(self.before, shape, strict=True):
            unknown = [name for name in group if name not in known]
            if len(unknown) > 1:
                listed = " and ".join(f"`{name}`" for name in unknown)
                help = f"give one of them, as in `{unknown[0]}=4`"
                raise self.wrong(f"the sizes of {listed} are not known", help)
            if unknown:
                known[unknown[0]] = floordiv(extent, product(known[n] for n in group if n in known))
        return known

    def wrong(self, why: str, help: str = "as in `b s (h d) -> b h s d`") -> FusecError:
        """Return the error of a pattern."""
        message = f"the pattern {self._text!r}: {why}"
        return FusecError(message, help=help, code=ARGUMENT_KIND)


def rearranged(
    function: str,
    pattern: str,
    shape: Sequence[Dim],
    sizes: Mapping[str, Dim],
    reduction: str = "",
    shown: Callable[[Dim], str] = str,
) -> str:
    """Return the expression of `x` for a pattern; FusecError for an unsupported one.

    sizes: the lengths of names given by the call. reduction: of names missing on the right side.
    shown: formats a size.
    """
    read = _Pattern(pattern, shape, sizes)
    known, names, wanted = read.sizes, read.names, read.wanted

    def listed(extents: Iterable[Dim]) -> str:
        return f"[{', '.join(map(shown, extents))}]"

    new = [name for name in wanted if name not in names]
    lacking = [name for name in new if name not in known or function != "repeat"]
    if lacking:
        given = f"give its size, as in `{lacking[0]}=4`"
        help = given if function == "repeat" else f"`repeat` with `{lacking[0]}=4` adds it"
        raise read.wrong(f"its left side has no `{lacking[0]}`", help)
    text = "x"
    if any(len(group) != 1 for group in read.before):
        text = f"reshape({text}, {listed(known[n] for n in names)})"
    gone = [k for k, name in enumerate(names) if name not in wanted]
    if gone and reduction in REDUCTIONS:
        text = f"{reduction}({text}, {gone})"
    elif gone and any(names[k] != "1" for k in gone):
        help = "`reduce` with `'sum'` sums over it"
        raise read.wrong(f"its right side has no `{names[gone[0]]}`", help)
    elif gone:
        text = f"squeeze({text}, {gone})"
    kept = [name for name in names if name in wanted]
    order = [kept.index(name) for name in wanted if name in kept]
    if order != sorted(order):
        text = f"permute({text}, {order})"
    if new:
        places = [k for k, name in enumerate(wanted) if name in kept]
        text = f"broadcast_in_dim({text}, {listed(known[n] for n in wanted)}, {places})"
    if any(len(group) != 1 or group == ("1",) for group in read.after):
        extents = (product(known[name] for name in group) for group in read.after)
        text = f"reshape({text}, {listed(extents)})"
    return text if text != "x" else "set(x)"


def einops(
    tree: CallTree, type_of: Callable[[Tree], Type | None], size_of: Callable[[Tree], Dim | None]
) -> Tree | None:
    """Return the equivalent of `rearrange(x, 'b s (h d) -> b h s d', h=4)`; None for other calls.

    type_of: returns the type of a named operand. size_of: returns the size given by an argument.
    """
    plain = [a.value for a in tree.arguments if a.keyword is None]
    words = {a.keyword.text: a.value for a in tree.arguments if a.keyword is not None}
    function = tree.name.text.rpartition(".")[2]
    how = words.pop("reduction", plain[2] if len(plain) > 2 else None)
    said = plain[1] if len(plain) > 1 else None
    if plain and isinstance(plain[0], Items):
        stacked = frameworks.parsed("stack(x, 0)")
        plain[0] = frameworks.substituted(stacked, {"x": plain[0]}, plain[0])
    type = type_of(plain[0]) if plain else None
    reduction = how.text if isinstance(how, (String, Name)) and function == "reduce" else ""
    shape = None if type is None else type.shape
    if not isinstance(said, String) or shape is None or len(plain) > 2 + bool(reduction):
        return None
    sizes = {name: size for name, tree in words.items() if (size := size_of(tree)) is not None}
    text = rearranged(function, said.text, shape, sizes, reduction)
    return frameworks.substituted(frameworks.parsed(text), {"x": plain[0]}, tree)
