"""Checks the links of a built documentation site: `python tests/site_links.py FOLDER`.

Links to pages, files and anchors of the site must lead somewhere. Others are not followed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Links(HTMLParser):
    """The links of a page, and the anchors that links may name."""

    def __init__(self, text: str) -> None:
        """Read a page."""
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the links and anchors of a tag."""
        given = dict(attrs)
        self.anchors |= {v for n in ("id", "name") if (v := given.get(n))}
        self.links += [v for n in ("href", "src") if (v := given.get(n))]


def dead_links(site: Path) -> Iterator[str]:
    """Yield each link that leads nowhere, as `page: link`."""
    pages = {p: Links(p.read_text(encoding="utf-8")) for p in sorted(site.rglob("*.html"))}
    for page, found in pages.items():
        for link in dict.fromkeys(found.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if target.is_dir():
                target /= "index.html"
            known = pages.get(target)
            anchor = unquote(parts.fragment)
            if not target.is_file() or (
                anchor and known is not None and anchor not in known.anchors
            ):
                yield f"{page.relative_to(site)}: {link}"


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    assert (folder / "generated" / "index.html").is_file(), f"{folder} is no site"
    dead = list(dead_links(folder))
    print("\n".join([*dead, f"{len(dead)} dead links"]))
    sys.exit(1 if dead else 0)
