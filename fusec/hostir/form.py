"""The JSON form of a host program, with sizes as expressions; it reads back to the same program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.diagnostics import FusecError
from fusec.hostir.program import (
    Alias,
    Allocate,
    Buffer,
    Copy,
    EncodeTensorMap,
    Free,
    HostProgram,
    IndexCheck,
    Launch,
    Memset,
    Scalar,
    check_program,
)
from fusec.hostir.records import Records
from fusec.schedule.plan import (
    Guard,
    ScalarArgument,
    SizeArgument,
    TensorArgument,
    TensorMapArgument,
    WorkspaceArgument,
)

RECORDS = Records({
    Allocate: "allocate", Free: "free", Alias: "alias", Memset: "memset", Copy: "copy",
    EncodeTensorMap: "encode", Launch: "launch", Buffer: "buffer", Scalar: "scalar_input",
    Guard: "guard", TensorArgument: "tensor", SizeArgument: "size", ScalarArgument: "scalar",
    WorkspaceArgument: "workspace", TensorMapArgument: "tensor_map", IndexCheck: "check",
})  # fmt: skip

_MOST_DEPTH = 64
_MOST_RUN = 64
_MOST_WIDTH = 1 << 24
_GROUPS = (1, 16, 32)


def to_json(program: HostProgram) -> dict[str, Any]:
    """Return the program as plain data for json.dumps."""
    return RECORDS.encode(program)


def from_json(data: Mapping[str, Any]) -> HostProgram:
    """Return the program that `data` describes; FusecError where it is damaged."""
    try:
        given: tuple[Scalar, ...] = RECORDS.decode(
            tuple[Scalar, ...], data.get("scalars"), "scalars"
        )
        names = frozenset(s.name for s in given)
        program: HostProgram = RECORDS.decode(HostProgram, data, "", names)
    except FusecError as error:
        reason = error.diagnostic.message
        raise FusecError(f"the host program is damaged: {reason}", help="compile again") from None
    check_program(program)
    return program
