"""Fields reserved for later versions of the file format."""

from __future__ import annotations

from fusec.codes.unsupported import RESERVED_FIELD
from fusec.diagnostics import Unsupported
from fusec.parse.fields import Problems
from fusec.parse.yaml_nodes import Mapping

RESERVED = {
    "order": "sums are added in the order of their kernel's schedule, the same in every run; "
    "`fusec explain --json` prints it"
}
"""The fields, each with the behaviour until then."""


def refuse_reserved(root: Mapping, problems: Problems) -> None:
    """Collect an Unsupported for each reserved field of a file."""
    for entry in root.entries:
        name = entry.key.text
        if name in RESERVED:
            with problems.collect():
                raise Unsupported(
                    f"`{name}:` is not supported yet",
                    span=entry.key.span,
                    notes=[RESERVED[name]],
                    help=f"remove `{name}`",
                    code=RESERVED_FIELD,
                )
