"""Properties of `fusec.properties` are computed once for each object, as those of functools are."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.properties import cached_property


@dataclass(frozen=True)
class Square:
    side: int

    @cached_property
    def areas(self) -> list[int]:
        """The area, in a list of its own."""
        return [self.side**2]


def test_a_property_is_computed_once_for_each_object() -> None:
    first, second = Square(3), Square(3)
    assert first.areas is first.areas
    assert first.areas == second.areas == [9]
    assert first.areas is not second.areas
    assert first == second, "a computed property is no field"


def test_the_class_has_the_property_with_its_documentation() -> None:
    assert isinstance(Square.areas, cached_property)
    assert Square.areas.__doc__ == "The area, in a list of its own."
