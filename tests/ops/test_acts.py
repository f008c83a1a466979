"""What operations do, as those who look for forms ask it."""

from __future__ import annotations

import pytest

from fusec.ops import TABLE, acts


def test_every_name_is_of_an_operation() -> None:
    assert set(acts._ACTS) <= set(TABLE)


@pytest.mark.parametrize("name", sorted(n for n, op in TABLE.items() if op.approx is not None))
def test_a_form_in_fewer_instructions_does_the_same(name: str) -> None:
    op = TABLE[name]
    assert op.approx is not None
    assert acts.act_of(op.approx) is acts.act_of(op)
