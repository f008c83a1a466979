"""The values of a program's scalars: given, known from sizes, or default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError

if TYPE_CHECKING:
    from fusec.hostir.program import HostProgram
    from fusec.ir.evaluate import Sizes


def scalar_values(program: HostProgram, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Return the value of each scalar by name; FusecError names one without a value."""
    values: dict[str, Any] = {}
    for scalar in program.scalars:
        given = inputs.get(scalar.of or scalar.name)
        value = sizes.get(scalar.name, scalar.default) if given is None else given
        if value is None:
            raise FusecError(f"scalar input `{scalar.of or scalar.name}` is missing")
        if scalar.of and given is not None:
            value = getattr(complex(given), scalar.part)
        values[scalar.name] = value
    return values
