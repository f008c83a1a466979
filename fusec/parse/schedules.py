"""The `schedules:` of a file, or of a separate file: required fields of segments' kernels."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError
from fusec.ir.annotations import Override, Setting
from fusec.ir.graph import Fusion
from fusec.ir.overrides import check_overrides
from fusec.parse import fields
from fusec.parse.source import source_of_file
from fusec.parse.yaml_nodes import Scalar, YamlNode, parse_yaml

_HELP = "write `y: {threads_x: 128}`; `fusec dump --schedule-space` lists the fields"


def overrides_of(node: YamlNode, fusion: Fusion) -> tuple[Override, ...]:
    """Return the overrides in `schedules:`, in order."""
    found: list[Override] = []
    for entry in fields.mapping(node, "schedules (a mapping)", _HELP).entries:
        of, what = entry.key, f"the fields of `{entry.key.text}`"
        for setting in fields.mapping(entry.value, what, _HELP).entries:
            name, value = setting.key, _setting(setting.value)
            found.append(
                Override(of.text, name.text, value, setting.value.span, name.span, of.span)
            )
    check_overrides(fusion, found)
    return tuple(found)


def with_schedules(fusion: Fusion, path: str) -> Fusion:
    """Return the fusion with the overrides of a file; they replace its own for the same fields."""
    root = fields.mapping(
        parse_yaml(source_of_file(path)), "a schedule file (a mapping)", "begin with `schedules:`"
    )
    fields.check_fields(root, ("schedules",), "a schedule file")
    node = root.get("schedules")
    if node is None:
        raise FusecError("the file has no `schedules`", span=root.span, help=_HELP)
    given = overrides_of(node, fusion)
    replaced = {(o.of, o.name) for o in given}
    kept = (o for o in fusion.schedules if (o.of, o.name) not in replaced)
    return replace(fusion, schedules=(*kept, *given))


def _setting(node: YamlNode) -> Setting:
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(value, (bool, int, str)):
        raise fields.wrong(node, "an integer, a string, true or false", _HELP)
    return fields.integer(node, "an integer") if type(value) is int else value
