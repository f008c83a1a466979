"""Folders of the package are small, packages say what they hold, and families stay in theirs."""

from __future__ import annotations

import ast
import re
from collections import Counter

from package_trees import FILES, PACKAGE, tree_of
from paths import ROOT

from fusec.schedule.registry import families

MOST_FILES = 40
"""Python modules in one folder."""
TOOLS = tuple(sorted((ROOT / "tools").glob("*.py")))


def test_folders_have_few_modules() -> None:
    counts = Counter(path.parent.relative_to(ROOT) for path in (*FILES, *TOOLS))
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_packages_say_what_they_hold() -> None:
    for folder in {path.parent for path in (*FILES, *TOOLS)}:
        assert ast.get_docstring(tree_of(folder / "__init__.py")), folder


NAMING = {
    "options.py": "the names that files may use",
    "schedule/registry.py": "the class and the requirement of each",
    "dumps/nvfuser.py": "what nvFuser calls those that it does not have",
    "explain/remedies.py": "what attention needs instead",
    "schedule/grid_methods.py": "the methods of those whose blocks share results",
    "segment/softmaxes.py": "whether attention has a kernel",
}
"""Modules that name a family beside its own; a new one needs to be in the first two only."""


def test_few_modules_name_a_family() -> None:
    """Of names that are those of families alone: all with an underscore."""
    names = sorted(f.name for f in families() if "_" in f.name)
    quoted = re.compile(rf'"(?:{"|".join(names)})"')
    own = re.compile(r"(schedule|codegen)/(\w+/|no_op\.py)")
    named = {
        place
        for path in FILES
        if quoted.search(path.read_text(encoding="utf-8"))
        and not own.match(place := path.relative_to(PACKAGE).as_posix())
    }
    assert named == NAMING.keys()
