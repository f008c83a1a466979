"""Former names of schedule fields and of their values, which files may still have."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass, field
from fusec.ir.annotations import Setting


@dataclass(frozen=True)
class Former:
    """A former field, or a present one with renamed values.

    fields: the present fields. values: their values for each former value; another value is that of
    the one present field.
    """

    fields: tuple[str, ...]
    values: Mapping[Setting, tuple[Setting, ...]] = field(
        default_factory=dict[Setting, tuple[Setting, ...]]
    )

    def now(self, value: Setting) -> Mapping[str, Setting] | None:
        """Return the present settings; None for an unknown value of a field that became several."""
        values = self.values.get(value, (value,))
        if len(values) != len(self.fields):
            return None
        return dict(zip(self.fields, values, strict=True))


def present(former: Mapping[str, Former], name: str, value: Setting) -> Mapping[str, Setting]:
    """Return a setting with present names; unchanged if it already has them."""
    each = former.get(name)
    found = None if each is None else each.now(value)
    return {name: value} if found is None else found


def all_present(
    former: Mapping[str, Former], settings: Mapping[str, Setting]
) -> Mapping[str, Setting]:
    """Return settings with present names."""
    if not former:
        return settings
    found: dict[str, Setting] = {}
    for name, value in settings.items():
        found.update(present(former, name, value))
    return found
