"""Templates read their view alone, and every template has a view."""

from __future__ import annotations

import importlib
from pathlib import Path

import jinja2
import jinja2.meta
import pytest

from fusec.codegen.dispatch import VIEWS
from fusec.codegen.render import environment

FOLDER = Path(__file__).parent.parent / "fusec" / "templates"
TEMPLATES = sorted(p.name for p in FOLDER.glob("*.cu.j2"))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_reads_only_its_view(name: str) -> None:
    source = (FOLDER / name).read_text()
    found = jinja2.meta.find_undeclared_variables(environment().parse(source))
    assert found <= {"k"}


def test_every_template_has_a_view_and_the_other_way_round() -> None:
    # `reduction` stands for both templates of the family.
    assert {n.removesuffix(".cu.j2") for n in TEMPLATES} == set(VIEWS) - {"reduction"}
    for module in VIEWS.values():
        assert callable(importlib.import_module(module).view)


def test_an_unknown_field_is_an_error_and_not_an_empty_text() -> None:
    template = environment().from_string("{{ k.no_such_field }}")
    with pytest.raises(jinja2.UndefinedError):
        template.render(k=object())
