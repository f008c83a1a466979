"""A host program as JSON and back, as manifests hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.hostir.form import RECORDS
from fusec.hostir.program import HostProgram, Scalar, check_program


def to_json(program: HostProgram) -> dict[str, Any]:
    """Return the program as plain data for json.dumps."""
    return RECORDS.encode(program)


def from_json(data: Mapping[str, Any]) -> HostProgram:
    """Return the program that `data` describes; FusecError where it is damaged."""
    given: tuple[Scalar, ...] = RECORDS.decode(tuple[Scalar, ...], data.get("scalars"), "scalars")
    names = frozenset(s.name for s in given)
    program: HostProgram = RECORDS.decode(HostProgram, data, "", names)
    check_program(program)
    return program
