"""Nodes of kernels: what their operators build, and which text they refuse."""

from __future__ import annotations

import pytest

from fusec.kernel.nodes import ZERO, Binary, Name, call, either, item, operand, total


def test_operators_print_the_parentheses_that_they_need() -> None:
    a = Name("a")
    assert str((a + "b") * "c" / 2) == "(a + b) * c / 2"
    assert str(a - (Name("b") - 1) % "c") == "a - (b - 1) % c"
    assert str(a * (Name("b") * 2)) == "a * (b * 2)"


def test_operands_are_names_and_numbers() -> None:
    found = call("fusec::load", item("x", "c", 0), "fusec::kPart", about=("kVec", 4))
    assert str(found) == "fusec::load<kVec, 4>(x[c][0], fusec::kPart)"
    assert total([]) is None
    assert str(either([Binary("<", Name("a"), ZERO), Name("b")])) == "a < 0 || b"


@pytest.mark.parametrize("text", ["a + b", "x[c]", "f()", "0", ""])
def test_text_is_no_operand(text: str) -> None:
    with pytest.raises(AssertionError, match="is not a name"):
        operand(text)
