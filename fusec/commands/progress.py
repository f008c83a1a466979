"""Progress of long work: on a terminal only, on stderr, gone when the work is done."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusec.run.build import Artifact, Progress


@contextmanager
def build_progress() -> Generator[Progress | None]:
    """Give a callback for the builder that moves a bar; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    # Loaded here: it takes longer to import than most commands take to run.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("building"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(artifact: Artifact, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=artifact.name)

        yield show


@contextmanager
def working(what: str) -> Generator[None]:
    """Show what is being done while it takes, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
