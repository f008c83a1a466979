"""Reads and writes the plans of programs, in the folder of built kernels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fusec.foreign import decode_json
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.plan_cache.key import key_of
from fusec.plan_cache.shared import entries, may_keep
from fusec.stages import Recorded

if TYPE_CHECKING:
    from fusec.plan_cache.records import Planned

KIND = "plan"
_LAYOUT = b"fusec plan 1"
"""The first line of an entry; its number is increased whenever the format changes."""


def recall(fusion: Fusion, options: CompileOptions, compiler: str = "") -> dict[str, Recorded]:
    """Return the cached plan of a fusion, by the attributes of its program; empty if unknown.

    compiler: as for `key_of`.
    """
    key = _key(fusion, options, compiler)
    body = None if key is None else entries().read(key, KIND, _LAYOUT)
    if body is None:
        return {}
    data: Any = decode_json(body, "an entry of the cache")
    return _decoded(data, frozenset(i.value.name for i in fusion.inputs if i.value.is_scalar))


def _decoded(data: Any, scalars: frozenset[str]) -> dict[str, Recorded]:
    """Return the values of an entry, decoded lazily: records take time to load.

    data: a `Planned` as JSON.
    """
    found = {
        "schedulers": Recorded(lambda: tuple(data["schedulers"])),
        "covers": Recorded(lambda: str(data["covers"])),
        "evaluated": Recorded(dict[str, Any]),
    }
    stages = data.get("stages")
    if stages is None:
        return found

    def program(name: str) -> Recorded:
        def read() -> Any:
            from fusec.plan_cache.records import program_of

            return program_of(stages[name], scalars)

        return Recorded(read)

    def sources() -> Any:
        from fusec.plan_cache.records import sources_of

        return sources_of(stages["kernels"], scalars)

    return found | {
        "kernels_launched": Recorded(lambda: dict(stages["launched"])),
        "sources": Recorded(sources),
        "posts": program("posts"),
        "host": program("host"),
    }


def keep(fusion: Fusion, options: CompileOptions, planned: Planned, compiler: str = "") -> None:
    """Write the plan of a fusion, where plans are cached."""
    from fusec.hostir.form import RECORDS

    key = _key(fusion, options, compiler)
    if key is not None:
        body = json.dumps(RECORDS.encode(planned)).encode()
        # A plan is small, and locking the total would take longer than planning a small fusion.
        entries().write(key, KIND, _LAYOUT, body, counts=False)


def _key(fusion: Fusion, options: CompileOptions, compiler: str) -> str | None:
    return key_of(fusion, options, compiler) if may_keep(options) else None
