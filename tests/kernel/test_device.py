"""The table of device names says what the headers define, and all that kernels use is in it."""

from __future__ import annotations

import re

import pytest
from paths import ROOT

from fusec.diagnostics import InternalError
from fusec.kernel.device import ACCESSES, DECLARED, HEADERS, header_of
from fusec.kernel.formulas import parsed
from fusec.kernel.nodes import Call, walk
from fusec.ops.table import TABLE

HEADERS_OF_DEVICE = ROOT / "fusec" / "templates" / "device"
DEFINED = re.compile(
    r"^(?:struct\b.*?(\w+) \{|using (\w+) =|(?:__device__|__host__).*?(\w+)\(|inline.*?(k\w+) =)"
    r"|^  __device__.*?(\w+)\(.*\\$",
    re.MULTILINE,
)
"""What a header defines at its top, or in the body of a macro."""


def defined(header: str) -> set[str]:
    """Return the names that a header defines."""
    text = (HEADERS_OF_DEVICE / header).read_text(encoding="utf-8")
    return {"".join(names) for names in DEFINED.findall(text)}


def test_headers_define_what_is_declared_of_them() -> None:
    missing = {
        header: lost
        for header, names in DECLARED.items()
        if (lost := set(names.split()) - defined(header))
    }
    assert missing == {}
    assert len(HEADERS) == sum(len(names.split()) for names in DECLARED.values()), "declared twice"


def test_functions_of_operations_are_declared() -> None:
    formulas = [f for op in TABLE.values() for f in op.cuda.values() if "{" in f]
    called = {n.function for n in walk(map(parsed, formulas)) if isinstance(n, Call)}
    own = {name.removeprefix("fusec::") for name in called if name.startswith("fusec::")}
    assert len(own) > 30
    assert own - HEADERS.keys() == set()


def test_names_in_templates_are_declared() -> None:
    templates = (ROOT / "fusec" / "templates").glob("*.j2")
    used = {n for path in templates for n in re.findall(r"\bfn\.(\w+)", path.read_text())}
    assert len(used) > 100
    assert used - HEADERS.keys() == set()


def test_templates_name_device_functions_by_fn_alone() -> None:
    """What a template's text names otherwise is in no header that is included for it."""
    for path in (ROOT / "fusec" / "templates").glob("*.j2"):
        text = re.sub(r"\{#.*?#\}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        others = [line for line in text.splitlines() if "fusec::" in line]
        assert [line for line in others if 'string == "fusec::i64"' not in line] == [], path.name


def test_accesses_are_of_declared_functions() -> None:
    assert ACCESSES.keys() - HEADERS.keys() == set()


def test_a_name_that_no_header_has_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="no device header is declared to have `lod`"):
        header_of("lod")
