"""Sphinx: `sphinx-build -W docs OUTPUT`, with the extra `docs` installed."""

import shutil
from pathlib import Path

from pygments.lexers import CLexer, TextLexer
from sphinx.application import Sphinx

from fusec.version import __version__
from tools import site

HERE = Path(__file__).parent

project, author, release = "fusec", "the fusec developers", __version__
extensions = ["myst_parser", "sphinx_click"]
root_doc = "generated/index"
exclude_patterns = ["_build"]
html_theme, html_title = "furo", f"fusec {release}"
html_extra_path: list[str] = []
highlight_language = "none"
myst_heading_anchors = 3


def setup(app: Sphinx) -> None:
    """Write the generated pages; highlight CUDA as C, and graphs as text."""
    site.write(HERE / "generated")
    app.add_lexer("cuda", CLexer)
    app.add_lexer("mermaid", TextLexer)
    app.connect("build-finished", _add_pages)


def _add_pages(app: Sphinx, error: Exception | None) -> None:
    """Copy the pages of `explain --html` to the site."""
    if error is None and app.builder.format == "html":
        pages = Path(app.outdir) / "pages"
        pages.mkdir(exist_ok=True)
        for path in (HERE / "generated" / "gallery").glob("*.html"):
            shutil.copyfile(path, pages / path.name)
