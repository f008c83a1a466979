"""What a kernel family states on its class: templates, their views and names, measured rates."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from package_trees import PACKAGE
from test_cli_names import DECLARED

from fusec.diagnostics import InternalError
from fusec.kernel.names import KEYWORDS
from fusec.schedule.blocks import SHIFTED, VECTOR_WIDTH, BlockParameters
from fusec.schedule.family import Family
from fusec.schedule.registry import families
from fusec.schedule.rows.parameters import TILE_ROWS
from fusec.schedule.templates import Template, find_template
from fusec.target.table import ORDER, find

KERNELS = sorted(p.name.removesuffix(".cu.j2") for p in (PACKAGE / "templates").glob("*.cu.j2"))
STATED = {
    "templates": {"pointwise": Template("pointwise")},
    "reach": ("pointwise",),
    "vocabulary": frozenset({"row"}),
}


def test_every_template_is_of_one_family() -> None:
    assert sorted(t for family in families() for t in family.templates) == KERNELS


@pytest.mark.parametrize("name", KERNELS)
def test_templates_have_views(name: str) -> None:
    families()
    assert callable(import_module(f"fusec.codegen.{find_template(name).view}").view)


def test_vocabularies_are_complete() -> None:
    for family in families():
        for name in family.templates:
            text = (PACKAGE / "templates" / f"{name}.cu.j2").read_text(encoding="utf-8")
            declared = set(DECLARED.findall(re.sub(r"//.*|\{#.*?#\}", "", text)))
            assert declared - family.vocabulary - KEYWORDS == set(), name


def test_rates_are_in_every_target_file() -> None:
    stated = {table for family in families() for table in family.reach}
    for arch in ORDER:
        assert stated == find(arch).rates.keys(), arch


def subclasses(kind: type[BlockParameters]) -> set[type[BlockParameters]]:
    return {kind}.union(*(subclasses(each) for each in kind.__subclasses__()))


def test_kernels_over_rows_have_common_fields_with_one_meaning() -> None:
    families()
    common = {field.name: field for field in (VECTOR_WIDTH, SHIFTED, TILE_ROWS)}
    records = [record for record in subclasses(BlockParameters) if record.free]
    assert len(records) >= 6
    for record in records:
        assert VECTOR_WIDTH in record.free
        assert all(common.get(field.name, field) == field for field in record.free), record


@pytest.mark.parametrize("part", STATED)
def test_a_family_that_lacks_a_statement_fails_at_import(part: str) -> None:
    stated = {"name": "histogram", **{k: v for k, v in STATED.items() if k != part}}
    with pytest.raises(InternalError, match=f"family `histogram` states no `{part}`: "):
        type("Histogram", (Family,), stated)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("templates", {"histogram": Template("histogram")}, "has no template fusec/templates/"),
        ("reach", (), "has templates and an empty `reach`"),
        ("vocabulary", frozenset(), "has templates and an empty `vocabulary`"),
    ],
)
def test_what_a_family_states_is_checked(part: str, value: object, message: str) -> None:
    with pytest.raises(InternalError, match=re.escape(message)):
        type("Histogram", (Family,), {"name": "histogram", **STATED, part: value})
