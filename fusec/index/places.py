"""Indices as functions of loop variables at known sizes, to evaluate one at many points."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fusec.ir.expression import Atom, Index, Loaded, Quotient, Var

At = Mapping[Var, int]
Place = Callable[[At], int]


def compile_index(value: Index, sizes: Mapping[str, int]) -> Place:
    """Return a function from loop variables to an index; loaded integers count as 0.

    FusecError if a size divides by 0.
    """
    constant = value.constant.evaluate(sizes)
    terms = [(compile_atom(a, sizes), c.evaluate(sizes)) for a, c in value.terms]
    if len(terms) == 1:
        ((only, scale),) = terms
        return lambda at: constant + scale * only(at)
    return lambda at: constant + sum([c * atom(at) for atom, c in terms])


def compile_atom(atom: Atom, sizes: Mapping[str, int]) -> Place:
    """Return a function from loop variables to an atom of an index."""
    if isinstance(atom, Var):
        return lambda at: at[atom]
    if isinstance(atom, Loaded):
        return lambda at: 0
    inner, by = compile_index(atom.inner, sizes), max(1, atom.divisor.evaluate(sizes))
    if isinstance(atom, Quotient):
        return lambda at: inner(at) // by
    return lambda at: inner(at) % by
