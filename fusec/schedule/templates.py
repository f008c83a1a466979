"""The templates of schedulers: each scheduler declares its own, with what is known of them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.diagnostics import InternalError

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "templates")
_STATED = ("templates", "reach", "vocabulary")


@dataclass(frozen=True)
class Template:
    """A template of a scheduler.

    view: the module below `fusec.codegen` whose `view(plan, kernel)` the template prints.
    registers: registers per thread that are about the same in all its kernels.
    """

    view: str
    registers: int = 4


_TEMPLATES: dict[str, Template] = {}
"""Templates of the imported schedulers, by name."""


def state(family: type, name: str) -> None:
    """Register the templates of a scheduler class; raise InternalError for missing declarations."""
    for part in _STATED:
        if part not in vars(family):
            raise InternalError(f"family `{name}` states no `{part}`: {_HELP[part]}")
    templates: Mapping[str, Template] = vars(family)["templates"]
    for template in templates:
        if not os.path.exists(os.path.join(_FOLDER, f"{template}.cu.j2")):
            raise InternalError(f"family `{name}` has no template fusec/templates/{template}.cu.j2")
    for part in _STATED[1:]:
        if templates and not vars(family)[part]:
            raise InternalError(f"family `{name}` has templates and an empty `{part}`")
    _TEMPLATES.update(templates)


_HELP = {
    "templates": "its templates by name, empty if its plans have no kernels of their own",
    "reach": "the tables `[reach.NAME]` of target files that its costs read",
    "vocabulary": "the names that its templates give to their own variables",
}


def find_template(name: str) -> Template:
    """Return a template of an imported scheduler; raise InternalError if none declares it."""
    if name not in _TEMPLATES:
        raise InternalError(f"no imported family states template `{name}`")
    return _TEMPLATES[name]
