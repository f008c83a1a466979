"""The page: well formed, complete, everything escaped, and nothing from outside."""

from __future__ import annotations

import html
import re
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from draws import drawn
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from fusec import driver
from fusec.cli import run_main
from fusec.codegen.dispatch import plan_sources
from fusec.driver import Compilation
from fusec.explain import drawing
from fusec.explain.drawing import Box, draw
from fusec.explain.facts import Choice, ChosenSegment, Recomputed, Refused, Taken
from fusec.explain.highlight import highlighted
from fusec.explain.layout import SHELF, arrange, shelved
from fusec.explain.page import Explained, page
from fusec.explain.record import explain
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text

VOID = {"meta", "br", "rect", "path", "input"}

BLOCK = """
fusion: block
doc: A norm before products, "quoted" & <b>bold</b> </pre><script>alert(1)</script>.
dims: {B: 256, H: 512, F: 1024}
inputs: {x: "bf16[B, H]", w: "bf16[H]", up: "bf16[H, F]", gate: "bf16[H, F]", down: "bf16[F, H]"}
ops:
  - xf = cast(x, f32)
  - ms = mean(mul(xf, xf), dims=[1], keepdim=true)
  - xn = cast(mul(mul(xf, rsqrt(add(ms, 1e-6))), w), bf16)
  - h = cast(mul(silu(cast(matmul(xn, gate), f32)), cast(matmul(xn, up), f32)), bf16)
  - y = cast(add(cast(matmul(h, down), f32), xf), bf16)
  - t = sum(cast(y, f32), dims=[0])
  - u = permute(y, [1, 0])
outputs: [y, t, u]
"""


class Page(HTMLParser):
    """Reads a page: tags must close in order; keeps attributes, and texts by the tags around."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.append((tag, ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))

    def of(self, tag: str) -> list[str]:
        return [text for own, text in self.texts if own == tag and text.strip()]

    def attributes(self, name: str) -> list[str]:
        return [value or "" for _, given in self.tags for n, value in given.items() if n == name]


def explained(fusion: Fusion) -> Explained:
    program = Compilation(fusion, CompileOptions())
    return Explained(explain(program), program)


@pytest.fixture(scope="module")
def block() -> Explained:
    return explained(read_text(BLOCK))


def example(name: str) -> Explained:
    return explained(driver.load(str(ROOT / "examples" / f"{name}.yaml")))


def test_every_segment_edge_and_kernel_is_there(block: Explained) -> None:
    text = page([block])
    read = Page(text)
    record = block[0]
    assert len(record.segments) >= 4
    assert read.attributes("data-of") == [s.name for s in record.segments]
    assert {f"f0-{s.name}" for s in record.segments} <= set(read.attributes("id"))
    titles = read.of("title")
    for tensor in record.crossing:
        assert tensor.bytes
        for consumer in tensor.consumers:
            ends = f"s{tensor.producer} to s{consumer}\n"
            (title,) = {t for t in titles if t.startswith(ends)}
            assert f"\n{tensor.name} {tensor.dtype}[" in title
    for segment in record.segments:
        for node in segment.nodes:
            assert node.text in titles
        for refusal in segment.refusals:
            assert html.escape(refusal.reason, quote=True).replace("&#x27;", "&#39;") in text
    for plan in block[1].plans:
        for source in plan_sources(plan):
            assert source.name in "".join(read.of("summary"))
    for decision in record.decisions:
        assert decision.action in "".join(read.of("b"))


def test_boundaries_tell_what_the_schedulers_of_their_segments_say(block: Explained) -> None:
    record, text = block[0], page([block])
    takers = {s.name: s.scheduler for s in record.segments}
    told = [
        refusal
        for decision in record.decisions
        if decision.action == "boundary"
        for refusal in decision.refusals
        if refusal.near or refusal.scheduler in {takers[name] for name in decision.subject}
    ]
    assert told
    for refusal in told:
        reason = html.escape(f"{refusal.reason} ({refusal.rule})", quote=True)
        assert reason.replace("&#x27;", "&#39;") in text


def test_the_kernels_stand_there_letter_by_letter(block: Explained) -> None:
    blocks = re.findall(r"<pre[^>]*>(.*?)</pre>", page([block]), re.DOTALL)
    plain = [html.unescape(re.sub(r"</?i[^>]*>", "", b)) for b in blocks]
    for plan in block[1].plans:
        for source in plan_sources(plan):
            assert source.text in plain
            assert "<script>alert(1)</script>" in source.text


def test_links_lead_somewhere(block: Explained) -> None:
    read = Page(page([block, block]))
    ids = read.attributes("id")
    assert max(Counter(ids).values()) == 1
    assert {f"#{i}" for i in ids} >= set(read.attributes("href"))
    assert len(read.attributes("href")) >= 2 * len(block[0].segments)


def test_nothing_comes_from_outside(block: Explained) -> None:
    read = Page(page([block]))
    names = {name for _, given in read.tags for name in given}
    assert not names & {"src", "srcset", "data", "action", "background", "xlink:href"}
    assert not [n for n in names if n.startswith("on")]
    assert not {"link", "iframe", "img", "object", "form"} & {t for t, _ in read.tags}
    (style,) = (t for t in read.of("style") if t.strip())
    assert "url(" not in style
    assert "@import" not in style
    (script,) = read.of("script")
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    (policy,) = [g["content"] for t, g in read.tags if g.get("http-equiv")]
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    )


def test_the_script_has_no_text_of_the_fusion(block: Explained) -> None:
    (script,), (other,) = (Page(page([e])).of("script") for e in (block, example("softmax")))
    assert script == other
    assert not {"innerHTML", "outerHTML", "eval", "fetch", "import"} & {*re.findall(r"\w+", script)}


EVIL = "<img src=x onerror=alert(1)>\"'&`</style></script></title>"


def test_every_text_is_escaped(block: Explained) -> None:
    record = block[0]
    first = record.segments[0]
    poisoned = replace(
        record,
        fusion=EVIL,
        target={"arch": "sm_90a", "device": EVIL, "cost_of": EVIL},
        sizes={EVIL.replace(".", ""): 1},
        aliases={EVIL: EVIL},
        segments=(
            replace(
                first,
                scheduler=EVIL,
                pin=EVIL,
                why=f"a; {EVIL}",
                inputs=(*first.inputs, EVIL),
                outputs=(*first.outputs, EVIL + "2"),
                nodes=tuple(replace(n, op=EVIL, text=EVIL) for n in first.nodes),
                refusals=(Refused(EVIL, EVIL, EVIL, near=True),),
            ),
            *record.segments[1:],
        ),
        crossing=tuple(
            replace(c, name=EVIL + str(k), dtype=EVIL, shape=(EVIL,), bytes_expr=EVIL)
            for k, c in enumerate(record.crossing)
        ),
        rematerialised=(Recomputed(EVIL, (EVIL,), EVIL, (0,), 1, EVIL),),
        decisions=tuple(Taken(a, (EVIL, "s0"), EVIL) for a in ("boundary", "merge", "split", EVIL)),
        choices=(
            Choice(EVIL, 1, 2, (ChosenSegment(EVIL, (EVIL,)),), None, (0.0, 1.0)),
            Choice("B", 3, 4, (), EVIL, None),
        ),
    )
    text = page([Explained(poisoned, block[1])])
    assert "<img" not in text
    Page(text)
    assert text.count("&lt;img src=x") > 25
    names = {name for _, given in Page(text).tags for name in given}
    assert "onerror" not in names


def test_pages_are_written_whole_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "page.html"
    file = str(ROOT / "examples" / "cross_entropy.yaml")
    assert run_main(["explain", file, "--html", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}: cross_entropy\n"
    first = target.read_text(encoding="utf-8")
    Page(first)
    assert "fitted on another GPU" not in first
    assert run_main(["explain", file, "--html", str(target), "--target", "sm_80,sm_90a"]) == 0
    capsys.readouterr()
    both = target.read_text(encoding="utf-8")
    assert both.count("<article") == 2
    assert "cross_entropy sm_80" in both
    assert both.count("fitted on another GPU, sm_90a") == 1  # of sm_80
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    assert run_main(["explain", file, "--html", str(target)]) == 0
    assert target.read_text(encoding="utf-8") == first


def inside(box: Box, frame: Box) -> bool:
    return box.x >= 0 and box.y >= 0 and box.x + box.width <= frame.width and (
        box.y + box.height <= frame.height
    )  # fmt: skip


def apart(one: Box, other: Box) -> bool:
    return (
        one.x + one.width <= other.x or other.x + other.width <= one.x
        or one.y + one.height <= other.y or other.y + other.height <= one.y
    )  # fmt: skip


@pytest.mark.parametrize("name", ["block", "seed_2146", "cross_entropy", "layernorm_backward"])
def test_boxes_are_apart_and_in_their_frames(name: str, block: Explained) -> None:
    found = block if name == "block" else example(name)
    picture = draw(found[0])
    assert picture is not None
    frames = [d.frame for d in picture.segments]
    for k, frame in enumerate(frames):
        assert frame.x + frame.width <= picture.width
        assert frame.y + frame.height <= picture.height
        assert all(apart(frame, other) for other in frames[k + 1 :])
    for shown, segment in zip(picture.segments, found[0].segments, strict=True):
        expected = len(segment.nodes) + len(segment.inputs) + len(segment.outputs)
        assert len(shown.boxes) == expected
        for k, box in enumerate(shown.boxes):
            assert inside(box, shown.frame)
            assert all(apart(box, other) for other in shown.boxes[k + 1 :])
            assert all(drawing.LETTER * len(line) <= box.width for line in box.lines)


def test_a_large_segment_is_summed_up(block: Explained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MOST_NODES", 3)
    picture = draw(block[0])
    assert picture is not None
    (summed,) = [b for b in picture.segments[0].boxes if b.kind == "op"]
    assert "3 mul" in summed.lines
    monkeypatch.setattr(drawing, "MOST_SEGMENTS", 3)
    assert draw(block[0]) is None
    read = Page(page([block]))
    assert {f"f0-{s.name}" for s in block[0].segments} <= set(read.attributes("id"))
    assert read.attributes("data-box") == [s.name for s in block[0].segments]


def test_what_is_computed_again_is_marked(block: Explained) -> None:
    name = block[0].segments[0].nodes[0].outputs[0]
    again = Recomputed(name, (), "f32", (0,), 8, "cheap")
    picture = draw(replace(block[0], rematerialised=(again,)))
    assert picture is not None
    (box,) = [b for d in picture.segments for b in d.boxes if b.kind == "again"]
    assert box.title.endswith(", computed again here")
    assert "Recomputed instead of stored" in page(
        [Explained(replace(block[0], rematerialised=(again,)), block[1])]
    )


def test_each_decision_is_in_one_table(block: Explained) -> None:
    taken = tuple(Taken(action, ("x",), f"as {action}") for action in ("merge", "undo"))
    text = page([Explained(replace(block[0], decisions=taken), block[1])])
    saved, others = text.split("Saved", 1)[1].split("Other decisions", 1)
    assert ("as merge" in saved, "as undo" in saved) == (True, False)
    assert ("as merge" in others, "as undo" in others) == (False, True)


@st.composite
def graphs(pick: Any) -> tuple[dict[Any, tuple[float, float]], list[tuple[int, int]]]:
    number = pick(st.integers(0, 14))
    sizes = {k: (pick(st.integers(1, 80)), pick(st.integers(1, 50))) for k in range(number)}
    lines = [(a, b) for b in range(number) for a in range(b) if pick(st.integers(0, 3)) == 0]
    return sizes, lines


@drawn(60)
@given(graphs(), st.booleans())
def test_layouts_keep_the_gaps_and_lead_down(
    graph: tuple[dict[Any, tuple[float, float]], list[tuple[int, int]]], apart_: bool
) -> None:
    sizes, lines = graph
    found = (shelved if apart_ else arrange)(sizes, lines, (10.0, 20.0))
    boxes = {
        k: Box("", p.x - sizes[k][0] / 2, p.y - sizes[k][1] / 2, *sizes[k], (), "", 0)
        for k, p in found.places.items()
    }
    assert boxes.keys() == sizes.keys()
    for a, box in boxes.items():
        assert box.x >= -1e-6
        assert box.x + box.width <= found.width + 1e-6
        assert box.y + box.height <= found.height + 1e-6
        wider = replace(box, x=box.x - 9.9, width=box.width + 19.8)
        assert all(apart(wider, other) for b, other in boxes.items() if a != b)
    for line in lines:
        way = found.ways[line]
        assert all(a.y <= b.y for a, b in pairwise(way))
        assert way[0].x == found.places[line[0]].x
        assert way[-1].x == found.places[line[1]].x


def test_parts_without_lines_stand_in_rows() -> None:
    width = SHELF / 3
    sizes: dict[Any, tuple[float, float]] = {k: (width, 50.0) for k in range(5)}
    found = shelved(sizes, [(0, 4)], (10.0, 20.0))
    assert found.places[0].x == found.places[4].x
    assert found.places[4].y == found.places[0].y + 70
    assert found.places[1].x == found.places[0].x + width + 10
    assert found.places[2].y > found.places[4].y
    assert found.width <= SHELF


def test_a_cycle_is_no_drawing() -> None:
    with pytest.raises(AssertionError, match="cycle"):
        arrange({1: (1, 1), 2: (1, 1)}, [(1, 2), (2, 1)], (1, 1))


def test_cuda_is_marked_up() -> None:
    marked = str(highlighted('// a <b>\n#include "x.cuh"\nint n = 0x1F + 1.5e-3f; /* c\n d */ "s"'))
    assert marked == (
        '<i class="comment">// a &lt;b&gt;</i>\n<i class="macro">#include &#34;x.cuh&#34;</i>\n'
        '<i class="word">int</i> n = <i class="number">0x1F</i> + <i class="number">1.5e-3f</i>; '
        '<i class="comment">/* c\n d */</i> <i class="text">&#34;s&#34;</i>'
    )


def test_every_colour_can_be_read() -> None:
    """Texts have a contrast of 4.5 to their backgrounds, lines and frames one of 3."""
    style = (ROOT / "fusec" / "explain" / "page.css.j2").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    for block in (light, dark):
        colours = dict(re.findall(r"--([\w]+): (#[0-9a-f]{6});", block))
        for ground in ("bg", "panel"):
            for name in ("fg", "quiet", "link", "comment", "word", "number", "text"):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        for k in range(drawing.HUES):
            assert contrast(colours[f"h{k}"], colours["bg"]) >= 3, k
            tinted = mixed(colours[f"h{k}"], colours["bg"], 0.3)
            assert contrast(colours["fg"], tinted) >= 4.5, k


def mixed(colour: str, ground: str, share: float) -> str:
    parts = (
        round(int(colour[k : k + 2], 16) * share + int(ground[k : k + 2], 16) * (1 - share))
        for k in (1, 3, 5)
    )
    return "#" + "".join(f"{p:02x}" for p in parts)


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG defines it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
