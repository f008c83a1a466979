"""`fusec docs` as a command: its options."""

from __future__ import annotations

import click

from fusec.commands.terminal import completion
from fusec.commands.terminal.diagnose import Report, diagnosed
from fusec.diagnostics import FusecError


@click.command("docs")
@click.argument("page", required=False, shell_complete=completion.pages)
@click.option("--search", "words", metavar="WORDS", help="Find the paragraphs with all words.")
@diagnosed
def docs_command(page: str | None, words: str | None, report: Report) -> int:
    """List the documentation and examples of this installation, or print PAGE."""
    from fusec.commands.docs import list_pages, print_page, search_pages

    if words is None:
        return list_pages(report) if page is None else print_page(page, report)
    if page is not None:
        raise FusecError("docs takes a page or --search, not both")
    return search_pages(words, report)
