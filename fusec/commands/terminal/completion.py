"""Shell completion: targets, operations, passes, and the dims of the given file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from fusec.diagnostics import FusecError
from fusec.options import ASKED

Items = list[CompletionItem]


def _beginning(incomplete: str, words: Iterable[str]) -> Items:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def targets(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Complete the last of several comma-separated targets."""
    from fusec.target.table import ORDER

    before, comma, _last = incomplete.rpartition(",")
    left = (arch for arch in ORDER if arch not in before.split(","))
    return _beginning(incomplete, (f"{before}{comma}{arch}" for arch in left))


def operations(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Complete the name of an operation, with the first line of its documentation."""
    from fusec.ops import TABLE
    from fusec.ops.frameworks import aliases

    own = [
        CompletionItem(op.name, help=op.doc.splitlines()[0])
        for op in TABLE.values()
        if op.name.startswith(incomplete)
    ]
    others = (entry for name, entry in aliases().items() if name.startswith(incomplete))
    # Include names of other frameworks only after the first letter.
    named = [CompletionItem(e.name, help=e.expressions[0]) for e in others if incomplete]
    return own + named


def pages(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Complete the name of a page of the documentation, with its title."""
    from fusec.pages.files import pages

    named = (page for page in pages().values() if page.name.startswith(incomplete))
    guides = (page for page in named if incomplete or "/" not in page.name)
    return [CompletionItem(page.name, help=page.title) for page in guides]


def files_or_codes(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Complete paths, as the shell does, and error codes if the word begins like one."""
    from fusec.codes import CODES

    named = incomplete.upper()
    codes = [c for c in CODES.values() if named and c.number.startswith(named)]
    return [CompletionItem(incomplete, type="file")] + [
        CompletionItem(code.number, help=code.title) for code in codes
    ]


def passes(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Complete the name of a pass."""
    from fusec.hostir.passes import PIPELINE as HOST_PIPELINE
    from fusec.passes import PIPELINE

    return _beginning(incomplete, (p.name for p in (*PIPELINE, *HOST_PIPELINE)))


def asked_passes(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Complete the name of an optional pass."""
    return _beginning(incomplete, ASKED)


def dims(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Complete `DIM=SIZE` with the dims of FILE and their default sizes; no script is run."""
    # After an option that still lacks its value, click leaves the remaining arguments unparsed.
    path = Path(str(context.params.get("file") or next(iter(context.args), "")))
    path = path / "fusion.yaml" if path.is_dir() else path
    if path.suffix not in (".yaml", ".yml"):
        return []
    return _beginning(incomplete, (f"{name}={size}" for name, size in _sizes(path)))


def _sizes(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the dims that a file declares; its other contents may be incomplete."""
    from fusec.parse.source import source_of_file
    from fusec.parse.yaml_nodes import Mapping, Scalar, parse_yaml

    with suppress(FusecError):
        root = parse_yaml(source_of_file(path))
        declared = root.get("dims") if isinstance(root, Mapping) else None
        for entry in declared.entries if isinstance(declared, Mapping) else ():
            size = entry.value.get("default") if isinstance(entry.value, Mapping) else entry.value
            if isinstance(size, Scalar) and isinstance(size.value, int):
                yield entry.key.text, size.value
