"""The page of a fusion inside of a notebook's cell."""

from __future__ import annotations

from html import escape

from fusec.dataclasses import replace
from fusec.driver import Compilation
from fusec.explain.page import page, with_recorded
from fusec.explain.record import explain
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions

HEIGHT = 640
"""Pixels of the frame; the page scrolls inside."""


def embedded(fusion: Fusion) -> str:
    """Return the page of a fusion, with default options, in a frame without scripts."""
    program = Compilation(replace(fusion, phases=()), CompileOptions())
    text = escape(page([with_recorded(explain(program), program)]), quote=True)
    style = f"width:100%;height:{HEIGHT}px;border:1px solid #8888"
    return f'<iframe sandbox srcdoc="{text}" style="{style}"></iframe>'
