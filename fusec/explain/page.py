"""A segmentation as one page that needs nothing else."""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fusec.diagnostics import FusecError
from fusec.explain.record import Explained
from fusec.explain.text import explanation


def write_page(path: str, found: Sequence[Explained]) -> None:
    """Write the page aside and rename it; FusecError where it cannot be written."""
    text = page(found)
    target, aside = Path(path), None
    try:
        if target.is_dir():
            raise FusecError(f"`{path}` is a directory", help="e.g. --html explain.html")
        handle, aside = tempfile.mkstemp(prefix=f".{target.name[:80]}.", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(aside, 0o644)
        os.replace(aside, target)
    except OSError as error:
        if aside is not None:
            Path(aside).unlink(missing_ok=True)
        raise FusecError(f"cannot write `{path}`: {error.strerror or error}") from None


def page(found: Sequence[Explained]) -> str:
    """Return the page."""
    texts = (html.escape(explanation(f.record)) for f in found)
    return "<!doctype html><meta charset=utf-8><pre>" + "\n".join(texts) + "</pre>\n"
