"""Indices at many places: as functions of numbers they are what substitution makes of them."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from fusec.index.places import compile_index
from fusec.ir.dim import dim, symbol
from fusec.ir.expression import Index, Var, index, of_var

H = symbol("H")
SIZES = {"H": 24}
ROW, COLUMN = Var("row", dim(40)), Var("column", H)


@st.composite
def indices(draw: st.DrawFn) -> Index:
    """Return sums of multiples, quotients and remainders of two loop variables."""
    found = index(draw(st.integers(0, 5)))
    for _ in range(draw(st.integers(1, 6))):
        term = of_var(draw(st.sampled_from((ROW, COLUMN))))
        other = draw(st.sampled_from((dim(2), dim(3), dim(8), H, H * 2)))
        how = draw(st.sampled_from(("add", "multiple", "quotient", "remainder")))
        if how == "add":
            found = found + term
        elif how == "multiple":
            found = found + term * other
        else:
            found = found // other if how == "quotient" else found % other
    return found


@given(indices(), st.integers(0, 39), st.integers(0, 23))
def test_compiled_indices_are_substituted_ones(value: Index, row: int, column: int) -> None:
    found = compile_index(value, SIZES)({ROW: row, COLUMN: column})
    placed = value.substitute({ROW: index(row), COLUMN: index(column)})
    assume(placed.is_const)  # quotients of sizes alone stay terms
    assert found == placed.constant.evaluate(SIZES)
