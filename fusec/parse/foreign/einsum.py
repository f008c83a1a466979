"""`torch.einsum` for fusec: a matmul if it is one, else a product and a sum."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from fusec.diagnostics import FusecError, Unsupported
from fusec.parse.foreign import frameworks
from fusec.parse.syntax.trees import Name, Tree


def einsum(
    equation: str, operands: Sequence[Tree], at: Tree, ranks: Sequence[int | None]
) -> Tree | None:
    """Return the expression for `equation`; None for one with `...` or a repeated index.

    ranks: of the operands, None if unknown.
    """
    names = [o.text if isinstance(o, Name) else "" for o in operands]
    made = expression_of(equation, ranks, names)
    if made is None:
        return None
    text, names = made
    given = dict(zip(names, operands, strict=True))
    return frameworks.substituted(frameworks.parsed(text), given, at)


def in_letters(equation: str) -> str:
    """Return an equation of einops, whose indices are words, with a letter for each of them."""
    words = dict.fromkeys(re.findall(r"\w+", equation))
    letters = iter(c for c in string.ascii_letters if c not in words)
    short = {w: w if len(w) == 1 else next(letters) for w in words}
    return re.sub(r"\w+", lambda word: short[word[0]], equation)


def _without_dots(equation: str, ranks: Sequence[int | None]) -> str:
    """Return an equation with letters for `...`, if the ranks of its operands are known."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if "..." not in equation or len(terms) != len(ranks) or not arrow:
        return equation
    letters = [c for c in string.ascii_uppercase if c not in equation]
    counts: list[int] = []
    for term, rank in zip(terms, ranks, strict=True):
        if "..." in term and rank is None:
            return equation
        counts.append(0 if "..." not in term else (rank or 0) - len(term.replace("...", "")))
    most = max(counts)
    if min(counts) < 0 or most > len(letters):
        return equation

    def of(term: str, count: int) -> str:
        return term.replace("...", "".join(letters[most - count : most]))

    made = ",".join(map(of, terms, counts))
    return f"{made}->{of(output, most)}"


def expression_of(
    equation: str, ranks: Sequence[int | None], called: Sequence[str] = ()
) -> tuple[str, list[str]] | None:
    """Return the text for `equation` and the names of its operands in it, which have `ranks`.

    called: names of operands in errors, empty for those without a name.
    """
    count = len(ranks)
    equation = _without_dots(equation, ranks)
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow:
        output = "".join(sorted(c for c in {*inputs} - {","} if inputs.count(c) == 1))
    if len(terms) != count:
        groups = f"{len(terms)} group{'s' * (len(terms) != 1)}"
        given = f"there is {count} operand" if count == 1 else f"there are {count} operands"
        few = len(terms) < count
        raise FusecError(
            f"`einsum`: `{equation}` has {groups} of indices before `->`, and {given}",
            help="write a group of indices for each operand, separated by commas"
            if few
            else f"name {len(terms)} operands, one for each group",
        )
    for place, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        if rank is not None and "." not in term and len(term) != rank:
            named = called[place] if place < len(called) else ""
            operand = f"`{named}`" if named else f"operand {place + 1}"
            indices = f"{len(term)} ind{'ex' if len(term) == 1 else 'ices'}"
            raise FusecError(
                f"`einsum`: `{term}` has {indices}, and {operand} has {rank} dims",
                help=f"write {rank} indices for {operand}, one for each dim",
            )
    unknown = next((c for c in output if c.isalpha() and c not in inputs), None)
    if unknown is not None:
        have = ", ".join(f"`{c}`" for c in dict.fromkeys(inputs) if c.isalpha())
        raise FusecError(
            f"`einsum`: `{unknown}` after `->` is in no operand", help=f"the operands have {have}"
        )
    twice = next((c for term in terms for c in term if term.count(c) > 1 and c.isalpha()), None)
    if twice is not None:
        raise Unsupported(
            f"`einsum` with `{twice}` twice in one operand: a diagonal",
            help="`where(arange(N)[:, none] == arange(N), x, 0)` keeps the diagonal of `x`, "
            "with 0 elsewhere",
        )
    if not all(map(_is_plain, [*terms, output])):
        return None
    names = [f"operand{k}" for k in range(len(terms))]
    text = (_matmul(terms, output, names) if len(terms) == 2 else None) or _sum(
        terms, output, names
    )
    return text, names


def _is_plain(term: str) -> bool:
    return (not term or term.isalpha()) and len(set(term)) == len(term)


def _matmul(terms: Sequence[str], output: str, names: Sequence[str]) -> str | None:
    """Return the matmul of two operands with one row, one column and one summed index."""
    left, right = terms
    if left and output and len(right) == 2 and output[:-1] == left[:-1] and output[-1:] in right:
        column, last = output[-1], left[-1]
        if right == column + last and column not in left:
            return f"linear({names[0]}, {names[1]})"
        if right == last + column and column not in left:
            return f"{names[0]} @ {names[1]}"
    batch = "".join(c for c in output if c in left and c in right)
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    summed = [c for c in left if c in right and c not in output]
    if not len(rows) == len(columns) == len(summed) == 1 or {*rows, *columns} - set(output):
        return None
    a = _ordered(names[0], left, batch + rows[0] + summed[0])
    b = _ordered(names[1], right, batch + summed[0] + columns[0])
    made = batch + rows[0] + columns[0]
    return f"{a} @ {b}" if made == output else _ordered(f"({a} @ {b})", made, output)


def _ordered(text: str, present: str, wanted: str) -> str:
    if present == wanted:
        return text
    if len(present) > 1 and present[:-2] + present[-1] + present[-2] == wanted:
        return f"transpose({text}, -2, -1)"
    return f"permute({text}, [{', '.join(str(present.index(c)) for c in wanted)}])"


def _sum(terms: Sequence[str], output: str, names: Sequence[str]) -> str:
    summed = sorted(set("".join(terms)) - set(output), key="".join(terms).index)
    order = output + "".join(summed)
    factors: list[str] = []
    for term, name in zip(terms, names, strict=True):
        text = _ordered(name, term, "".join(c for c in order if c in term))
        keys = ", ".join(":" if c in term else "none" for c in order)
        factors.append(text if len(term) == len(order) else f"{text}[{keys}]")
    dims = ", ".join(str(len(output) + k) for k in range(len(summed)))
    return f"sum({' * '.join(factors)}, [{dims}])" if summed else " * ".join(factors)
