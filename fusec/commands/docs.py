"""Output of `fusec docs`: the documentation and examples of this installation."""

from __future__ import annotations

import sys
from textwrap import shorten

from fusec.commands.error_pages import names_code
from fusec.commands.terminal.diagnose import Report
from fusec.diagnostics import FusecError
from fusec.pages.files import CONTENTS, Page, examples, pages, root, search

_WIDTH = 100
"""Maximum number of characters of a paragraph in search results."""


def list_pages(report: Report) -> int:
    """Print the path of the documentation, its pages and the examples."""
    guides = [page for page in pages().values() if not page.name.startswith("decisions/")]
    report.facts["docs"] = {
        "folder": str(root()),
        "pages": [{"name": p.name, "title": p.title, "file": _file(p)} for p in guides],
        "examples": [str(root() / path) for path in examples()],
    }
    print(f"in {root()}:")
    for section, names in CONTENTS.items():
        print(section)
        for page in (p for p in guides if p.name in names):
            print(f"  {page.name:<16} {page.title}")
    print(f"  {'decisions/NNN':<16} {len(pages()) - len(guides)} design decisions")
    print("Examples")
    print(f"  {'examples':<16} {len(examples())} fusion files")
    print("next:")
    for command, purpose in (
        ("fusec docs PAGE", "print a page"),
        ("fusec docs examples", "print the paths of the examples"),
        ("fusec docs --search WORDS", "find the paragraphs with all words"),
    ):
        print(f"  {command:<28} {purpose}")
    return 0


def print_page(name: str, report: Report) -> int:
    """Print a page as Markdown, or the paths of the examples."""
    if name.rstrip("/") == "examples":
        text = "".join(f"{root() / path}\n" for path in examples())
    else:
        text = _find(name).text
    report.facts["page"] = {"name": name, "text": text}
    sys.stdout.write(text)
    return 0


def search_pages(words: str, report: Report) -> int:
    """Print the paragraphs that contain all words, each with its page; FusecError if none does."""
    found = list(search(words))
    if not words.split() or not found:
        raise FusecError(
            f"no paragraph of the documentation contains {words!r}",
            help="`fusec docs` lists the pages, `fusec ops` the operations",
        )
    report.facts["matches"] = [
        {"name": m.page.name, "file": _file(m.page), "line": m.line, "text": m.text} for m in found
    ]
    for match in found:
        print(f"{match.page.name}:{match.line}: {shorten(match.text, _WIDTH, placeholder=' ...')}")
    return 0


def _file(page: Page) -> str | None:
    return None if page.path is None else str(page.path)


def _find(name: str) -> Page:
    """Return a page by its name or the path of its file: `files`, `docs/files.md`, `225`."""
    from fusec.ops.find import nearest

    plain = name.lower().removeprefix("docs/").removesuffix(".md")
    head, slash, last = plain.rpartition("/")
    number = last.partition("-")[0]
    if number.isdigit() and head in ("", "decisions"):
        plain, slash = f"decisions/{int(number):03}", "/"
    page = pages().get(plain)
    if page is not None:
        return page
    if names_code(name):
        help = f"error codes are explained by `fusec explain {name.upper()}`"
        raise FusecError(f"the documentation has no page {name!r}", help=help)
    meant = None if slash else nearest(plain, pages())
    help = f"did you mean `fusec docs {meant}`?" if meant else f"`fusec docs --search {name}`"
    raise FusecError(f"the documentation has no page {name!r}", help=help)
