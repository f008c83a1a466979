"""The documentation and examples that come with fusec, in a checkout and in an installation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from fusec.dataclasses import dataclass

CONTENTS: Mapping[str, Sequence[str]] = {
    "Start": ("readme", "tutorial", "how-to", "coming-from"),
    "Fusions": ("files", "sharding", "schedules"),
    "Use": ("commands", "calls", "models", "c", "ranks", "tuning"),
    "Understand": (
        "explain", "verification", "products", "attention", "grid-reduce", "host-programs", "bench",
    ),
    "Reference": ("errors", "json", "query", "manifest", "trust", "stability"),
    "Development": ("changelog", "contributing"),
}  # fmt: skip
"""The pages other than decisions by section, in the order in which they are listed."""
_TOP = ("readme", "changelog", "contributing")
"""Pages next to the folder `docs`, in files with names in capitals."""
_PACKAGE = Path(__file__).parents[1]
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_PARAGRAPHS = re.compile(r"\n(?:\s*\n|(?=[-|#]))")


def _schedules() -> str:
    from fusec.pages.schedules import schedules_page

    return schedules_page()


GENERATED: Mapping[str, Callable[[], str]] = {"schedules": _schedules}
"""Pages that are generated from declarations."""


@dataclass(frozen=True)
class Page:
    """A page by the name in `fusec docs NAME`; path: None for a generated page."""

    name: str
    path: Path | None

    @property
    def text(self) -> str:
        """Return the Markdown."""
        if self.path is None:
            return GENERATED[self.name]()
        return self.path.read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """Return the heading of the page."""
        found = _TITLE.search(self.text)
        return found[1] if found else self.name


@dataclass(frozen=True)
class Match:
    """A paragraph with the words of a search; line: counted from 1."""

    page: Page
    line: int
    text: str


def root() -> Path:
    """Return the folder with `docs` and `examples`: the checkout, or the wheel's data folder."""
    installed = _PACKAGE / "share"
    return installed if installed.is_dir() else _PACKAGE.parent


@cache
def pages() -> Mapping[str, Page]:
    """Return the pages by name: as CONTENTS lists them, then decisions by number."""
    folder = root()
    listed = [Page(name, _path_of(name)) for names in CONTENTS.values() for name in names]
    decisions = [
        Page(f"decisions/{p.name.partition('-')[0]}", p)
        for p in sorted((folder / "docs" / "decisions").glob("[0-9]*.md"))
    ]
    found = (*listed, *decisions)
    return {page.name: page for page in found if page.path is None or page.path.is_file()}


def _path_of(name: str) -> Path | None:
    if name in GENERATED:
        return None
    return root() / (f"{name.upper()}.md" if name in _TOP else f"docs/{name}.md")


def examples() -> list[Path]:
    """Return the example files, each relative to the root."""
    folder = root()
    found = (folder / "examples").rglob("*.yaml")
    return sorted(p.relative_to(folder) for p in found if "golden" not in p.parts)


_FILLERS = frozenset({
    "a", "an", "and", "are", "can", "do", "does", "for", "from", "how", "i", "in", "is", "it", "my",
    "of", "on", "or", "the", "this", "to", "was", "were", "what", "when", "where", "why", "with",
})  # fmt: skip


def search(words: str) -> Iterator[Match]:
    """Yield the paragraphs with every word, in any case: headings, then the how-to index first.

    The small words of a question count only if there are no others.
    """
    given = [word.strip("?,.") for word in words.lower().split()]
    wanted = [word for word in given if word not in _FILLERS] or given
    found = [m for page in pages().values() for m in _matches(page, wanted)]
    yield from sorted(found, key=lambda m: (not m.text.startswith("#"), m.page.name != "how-to"))


def _matches(page: Page, wanted: list[str]) -> Iterator[Match]:
    line, start, text = 1, 0, page.text
    for end in (*(m.end() for m in _PARAGRAPHS.finditer(text)), len(text)):
        paragraph = text[start:end]
        if all(word in paragraph.lower() for word in wanted):
            yield Match(page, line, " ".join(paragraph.split()))
        line += paragraph.count("\n")
        start = end
