"""The pages of the documentation site that are generated: operations, gallery, indexes.

`docs/conf.py` writes them to `docs/generated`, which git ignores.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fusec import driver
from fusec.activity import activity
from fusec.driver import Compilation
from fusec.explain.page import page, with_recorded
from fusec.explain.record import explain
from fusec.explain.text import explanation
from fusec.ir.op import OpDef
from fusec.ops import TABLE
from fusec.options import CompileOptions
from fusec.pages.files import CONTENTS, GENERATED, examples, pages, root
from fusec.pages.operations import describe, example_file
from fusec.parse import read_text

_GENERATED: Mapping[str, Sequence[str]] = {
    "Fusions": ("operations/index",), "Use": ("command-line",), "Understand": ("gallery/index",),
    "Development": ("decisions",),
}  # fmt: skip
"""Pages that only the site has, by section."""
_TARGET = CompileOptions()
_COMMANDS = """\
# Command line

```{eval-rst}
.. click:: fusec.cli:cli
   :prog: fusec
   :nested: full
```
"""


def contents() -> dict[str, list[str]]:
    """Return the pages of the site by section, without endings; its index has the README."""
    found: dict[str, list[str]] = {}
    for section, names in CONTENTS.items():
        guides = [n if (root() / "docs" / f"{n}.md").is_file() else f"generated/{n}" for n in names]
        own = [f"generated/{name}" for name in _GENERATED.get(section, ())]
        found[section] = [name for name in (*guides, *own) if name != "generated/readme"]
    return found


def write(folder: Path) -> None:
    """Write all generated pages to an empty folder, which is removed before."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in generated().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def generated() -> dict[str, str]:
    """Return the generated pages by path."""
    top = {name: (root() / f"{name.upper()}.md") for name in ("changelog", "contributing")}
    return {
        "index.md": _index(),
        "command-line.md": _COMMANDS,
        "decisions.md": _decisions(),
        **{f"{name}.md": _moved(make()) for name, make in GENERATED.items()},
        **{f"{name}.md": _moved(path.read_text("utf-8")) for name, path in top.items()},
        **dict(_operations()),
        **dict(_gallery()),
    }


def _moved(text: str) -> str:
    """Return a page of the root or of `docs` with links as from `docs/generated`."""
    return text.replace("](docs/", "](../").replace("](files.md", "](../files.md").replace(
        "](tuning.md", "](../tuning.md"
    )  # fmt: skip


def _index() -> str:
    readme = (root() / "README.md").read_text(encoding="utf-8")
    about = readme.partition("\n\n")[2].partition("\n\n")[0]
    parts = [f"# fusec\n\n{about}\n\nStart with the [tutorial](../tutorial.md), or find a task in "]
    parts.append("the [how-to index](../how-to.md).\n")
    for section, names in contents().items():
        entries = "\n".join(f"/{name}" for name in names)
        parts.append(f"\n```{{toctree}}\n:caption: {section}\n:maxdepth: 1\n\n{entries}\n```\n")
    return "".join(parts)


def _decisions() -> str:
    named = [page for name, page in pages().items() if name.startswith("decisions/")]
    files = "\n".join(f"/decisions/{page.path.stem}" for page in named if page.path is not None)
    return (
        "# Decisions\n\nChoices that a reader of the code would question, with their reasons.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n/decisions/README\n{files}\n```\n"
    )


def _operations() -> Iterator[tuple[str, str]]:
    """Yield an index of the operations by family, and a page of each."""
    families: dict[str, list[OpDef]] = {}
    for op in TABLE.values():
        families.setdefault(op.family, []).append(op)
    index = ["# Operations\n"]
    for family, ops in families.items():
        index.append(f"\n## {family}\n\n| operation | |\n| --- | --- |")
        index += [f"| [{op.name}]({op.name}.md) | {op.doc.splitlines()[0]} |" for op in ops]
    hidden = "\n".join(sorted(TABLE))
    index.append(f"\n```{{toctree}}\n:hidden:\n\n{hidden}\n```\n")
    yield "operations/index.md", "\n".join(index)
    for op in TABLE.values():
        with activity(f"page of {op.name}"):
            yield f"operations/{op.name}.md", _operation(op)


def _operation(op: OpDef) -> str:
    """Return the page of an operation, with the kernel that its example becomes."""
    example = example_file(op)
    about = describe(op).removesuffix(example).rstrip()
    signature, _, rest = about.partition("\n")
    text = "\n".join(f"{line}  " if line else "" for line in rest.strip().splitlines())
    parts = [f"# {op.name}\n\n```python\n{signature}\n```\n\n{_escaped(text)}\n"]
    parts.append(f"\n```yaml\n{example.rstrip()}\n```\n")
    for source in Compilation(read_text(example), _TARGET).kernel_sources:
        parts.append(f"\n```cuda\n{source.text.rstrip()}\n```\n")
    return "".join(parts)


def _escaped(text: str) -> str:
    """Return text whose asterisks, brackets and underscores are not markup."""
    return "".join(f"\\{c}" if c in "*_[]<>{}$" else c for c in text)


def _gallery() -> Iterator[tuple[str, str]]:
    """Yield an index of the examples, a page of each, and its page of `explain --html`."""
    files = [path for path in examples() if len(path.parts) == 2]
    rows = ["# Gallery\n\n| example | kernels | |\n| --- | --- | --- |"]
    for path in files:
        with activity(f"gallery: {path}"):
            programs = driver.programs(str(root() / path), _TARGET)
            found = [with_recorded(explain(program), program) for program in programs]
            records = [each.record for each in found]
            doc = programs[0].original.doc.splitlines()[0] if programs[0].original.doc else ""
            kernels = sum(s.kernels for r in records for s in r.segments)
            rows.append(f"| [{path.stem}]({path.stem}.md) | {kernels} | {doc} |")
            said = "\n".join(explanation(record) for record in records)
            file = (root() / path).read_text(encoding="utf-8").rstrip()
            yield f"gallery/{path.stem}.html", page(found)
            yield (
                f"gallery/{path.stem}.md",
                (
                    f"# {path.stem}\n\n{doc}\n\n`{path}`:\n\n```yaml\n{file}\n```\n\n"
                    f"`fusec explain {path}`:\n\n```text\n{said.rstrip()}\n```\n\n"
                    f'<a href="../../pages/{path.stem}.html">graph, CUDA source and decisions</a>\n'
                ),
            )
    hidden = "\n".join(path.stem for path in files)
    yield "gallery/index.md", "\n".join([*rows, f"\n```{{toctree}}\n:hidden:\n\n{hidden}\n```\n"])
