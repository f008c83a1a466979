"""What a notebook shows of definitions and programs: the page of `explain --html`."""

from __future__ import annotations

import html
import re

from paths import ROOT
from test_explain_page import Page

import fusec

EXAMPLE = str(ROOT / "examples" / "softmax.yaml")


def shown(text: str) -> str:
    """Return the page inside of a frame, which runs no script."""
    found = re.fullmatch(r'<iframe sandbox srcdoc="([^"]*)" style="[^"]*"></iframe>', text)
    assert found is not None
    page = html.unescape(found[1])
    Page(page)
    return page


def test_a_program_is_shown() -> None:
    program = fusec.compile(EXAMPLE)
    assert "softmax_inner_persistent" in shown(program._repr_html_())


def test_a_definition_is_shown_once_it_has_an_output() -> None:
    with fusec.FusionDefinition("f") as fd:
        x = fd.define_tensor(shape=[64, 64])
        y = fd.ops.exp(x)
        assert fd._repr_html_() is None
        fd.add_output(y)
    text = fd._repr_html_()
    assert text is not None
    assert "f_pointwise" in shown(text)
