"""The documentation site: its pages, their links, and a build without warnings."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from site_links import dead_links

from fusec.cli import cli
from fusec.ops import TABLE
from tools.site import contents

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def test_every_page_is_in_the_contents() -> None:
    listed = [name for names in contents().values() for name in names]
    assert sorted(n for n in listed if "/" not in n) == [p.stem for p in PAGES]
    assert len(listed) == len({*listed})


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_of_pages_lead_to_pages_and_headings(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, _, anchor in re.findall(r"\]\((?!\w+:)([^)#]*)(#([^)]+))?\)", text):
        path = (page.parent / target) if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


@pytest.mark.parametrize("page", ["how-to", "coming-from"])
def test_the_index_names_what_exists(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    for path in re.findall(r"`(examples/[\w./]+)`", text):
        assert (ROOT / path).exists(), path
    for command in re.findall(r"`fusec ([a-z]+)", text):
        assert command in cli.commands, command
    options = {o for c in cli.commands.values() for p in c.params for o in p.opts}
    for option in re.findall(r"`fusec [^`]*?(--[a-z][\w-]+)", text):
        assert option in options or option.replace("-", "_") in {
            o.replace("-", "_") for o in options
        }


def test_dead_links_are_found(tmp_path: Path) -> None:
    other = '<h1 id="there">x</h1><a href="page.html#Q%20q">x</a><a href="/etc/none">x</a>'
    (tmp_path / "other.html").write_text(other, encoding="utf-8")
    links = ["other.html", "other.html#there", "other.html#here", "none.html", "#own", "#Q q"]
    links += ["https://example.org/none", "mailto:a@b", ".", "sub/", "?q=1"]
    page = '<p id="Q q">' + "".join(f'<a href="{link}">x</a>' for link in links)
    (tmp_path / "page.html").write_text(page + '<img src="none.png">', encoding="utf-8")
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text("", encoding="utf-8")
    assert list(dead_links(tmp_path)) == [
        "other.html: /etc/none",
        "page.html: other.html#here", "page.html: none.html", "page.html: #own", "page.html: sub/",
        "page.html: none.png",
    ]  # fmt: skip


@pytest.mark.nightly
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    """Every operation and example has a page, and Sphinx finds every link."""
    for package in ("sphinx", "myst_parser", "furo", "sphinx_click"):
        pytest.importorskip(package)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert list(dead_links(tmp_path)) == []
    built = tmp_path / "generated"
    assert {p.stem for p in (built / "operations").glob("*.html")} >= TABLE.keys()
    gallery = {p.stem for p in (ROOT / "examples").glob("*.yaml")}
    for folder in (built / "gallery", tmp_path / "pages"):
        assert {p.stem for p in folder.glob("*.html")} - {"index"} == gallery
