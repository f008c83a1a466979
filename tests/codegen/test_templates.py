"""Templates read their view alone, and every template has a view."""

from __future__ import annotations

import re

import jinja2
import jinja2.meta
import pytest
from paths import ROOT

from fusec.codegen.render import environment

FOLDER = ROOT / "fusec" / "templates"
TEMPLATES = sorted(p.name for p in FOLDER.glob("*.cu.j2"))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_reads_only_its_view(name: str) -> None:
    source = (FOLDER / name).read_text()
    found = jinja2.meta.find_undeclared_variables(environment().parse(source))
    assert found <= {"k"}


MEMORY_BOUND = (
    "pointwise", "transpose", "reduction_inner", "reduction_outer", "inner_persistent",
    "outer_persistent", "inner_outer_persistent", "column_finish", "scan_rows", "scan_columns",
    "scan_tiles",
)  # fmt: skip
SURGERY = re.compile(r"~|\.format\(|\.[lr]?strip\(|\| *(?:replace|join|indent|string)\b")


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_a_page(name: str) -> None:
    assert len((FOLDER / name).read_text().splitlines()) <= 120


@pytest.mark.parametrize("name", [f"{name}.cu.j2" for name in MEMORY_BOUND])
def test_a_template_puts_no_code_together(name: str) -> None:
    source = (FOLDER / name).read_text()
    tags = " ".join(re.findall(r"\{[{%].*?[}%]\}", source))
    assert not SURGERY.search(tags)
    assert " in (" not in tags


def test_the_nests_of_rows_are_told_once() -> None:
    files = [f"{name}.cu.j2" for name in MEMORY_BOUND] + ["_nest.j2", "_scan.j2"]
    assert sum(len((FOLDER / name).read_text().splitlines()) for name in files) <= 770


def test_an_unknown_field_is_an_error_and_not_an_empty_text() -> None:
    template = environment().from_string("{{ k.no_such_field }}")
    with pytest.raises(jinja2.UndefinedError):
        template.render(k=object())
