"""What a launcher's function reads is known from its steps, not from what they print as."""

from __future__ import annotations

from fusec.emit.code import code, field_of, joined, variable
from fusec.emit.expressions import Sizes
from fusec.emit.view import Axis, Call, Loop, Placed, PlacedMemory, PlanView, SetView
from fusec.ir.dim import dim, minimum, symbol

AXIS = Axis("tp", 2, 1, "tp")
SIZES = Sizes({"B": field_of("s", "B"), "tp.place": variable("tp_place")})
MEMORY = PlacedMemory("at_0", "t", SIZES.text(dim(256)), zeroed=False)


def plan(*steps: Call | Loop | SetView) -> PlanView:
    places = Placed("tp_place", AXIS)
    return PlanView("p", "", (), (), (MEMORY,), steps, (places,), streams=1)


def test_comments_read_nothing() -> None:
    comment = "t = all_gather(memory + places->at_0) of streams, s->B, a->x, tp_place"
    found = plan(Call(code("f({})", "on"), comment))
    assert found.unread_parameters == ("functions", "a", "memory", "places", "streams")
    assert found.step_sizes_unread
    assert "tp_place" not in found.issue_arguments


def test_code_reads_what_its_parts_read() -> None:
    place = code("{} + {}", variable("memory"), field_of("places", "at_0"))
    count = SIZES.text(minimum(symbol("B"), symbol("tp.place")) + 1)
    call = Call(code("f({})", joined(", ", (place, variable("streams"), 3))))
    found = plan(Loop("", "i", count, (call,)))
    assert found.unread_parameters == ("functions",)
    assert not found.step_sizes_unread
    assert found.issue_arguments.endswith("tp_place")


def test_a_view_is_set_in_the_arguments() -> None:
    found = plan(SetView("y", "at_y"))
    assert found.unread_parameters == ("functions", "memory", "places", "streams")
