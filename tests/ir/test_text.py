"""The text form of fusions: it reads back equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from draws import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT
from strategies import fusions

from fusec.ir.annotations import Pin
from fusec.ir.dim import Dim, ceildiv, dim, floordiv, maximum, minimum, mod, symbol
from fusec.ir.dtype import BF16, BOOL, F32, F64, I64
from fusec.ir.graph import Const, Fusion
from fusec.ir.text import to_text
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_file, read_text

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def check_round_trip(fusion: Fusion) -> str:
    """Check that the text reads back equal and prints the same again; return it."""
    text = to_text(fusion)
    again = read_text(text)
    assert again == fusion, text
    assert again.doc == fusion.doc
    assert to_text(again) == text
    assert read_text(to_text(fusion, types=False)) == fusion
    return text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_round_trip(path: Path) -> None:
    """Every example reads back from its text, with its segments."""
    fusion = read_file(path)
    again = read_text(check_round_trip(fusion))
    assert [(p.name, p.values, p.scheduler) for p in again.pins] == [
        (p.name, p.values, p.scheduler) for p in fusion.pins
    ]
    assert [v.name for v in again.values] == [v.name for v in fusion.values]


@drawn(20)
@given(fusions())
def test_random_fusions_round_trip(fusion: Fusion) -> None:
    """Graphs over the whole op table read back from their text."""
    check_round_trip(fusion)


def test_the_text_is_readable() -> None:
    """One line per node, keyword attributes, types as comments, defaults left out."""
    text = """\
fusion: norm
doc: A small one.
dims:
  B: 4
  H: {default: 8, multiple_of: 8}
inputs:
  x: bf16[B, H]
  w:
    type: bf16[H]
    range: [-1.0, 1.0]
  eps: f32 = 1e-5
ops:
  - xf = cast(x, dtype=f32)  # f32[B, H]
  - var, mean = var_mean(xf, dims=[1])  # f32[B], f32[B]
  - t = add(var, eps)  # f32[B]
  - y = permute(xf, dims=[1, 0])  # f32[H, B]
outputs:
  - t
  - mean
  - y: {stride_order: [0, 1]}
segments:
  a: {values: [xf, var, mean, t], scheduler: reduction}
  b: [y]
"""
    assert to_text(read_text(text)) == text


def test_given_segments_replace_the_pins() -> None:
    """A segmented fusion prints with its own segments."""
    fusion = read_file(EXAMPLES[0])
    values = tuple(v.name for n in fusion.nodes for v in n.outputs)
    text = to_text(fusion, [Pin("s0", values, "pointwise")])
    (pin,) = read_text(text).pins
    assert (pin.name, pin.values, pin.scheduler) == ("s0", values, "pointwise")


def test_segments_name_only_what_is_left() -> None:
    """Pins of values that a pass removed do not spoil the text."""
    fusion = read_file(EXAMPLES[0])
    name = fusion.nodes[0].output.name
    text = to_text(fusion, [Pin("a", (name, "gone")), Pin("b", ("gone",))])
    assert [(p.name, p.values) for p in read_text(text).pins] == [("a", (name,))]


def test_layouts() -> None:
    """Every kind of layout prints in the form that makes it again."""
    build = GraphBuilder("layouts")
    b, h = build.declare_dim("B", 4), build.declare_dim("H", 8)
    build.input("dense", F32, (b, h))
    build.input("rows", F32, (b, h), contiguity=[False, True])
    build.input("both", F32, (b, h), contiguity=[False, False])
    build.input("row", F32, (b, h), contiguity=[None, True])
    build.input("turned", F32, (b, h), stride_order=[0, 1])
    build.input("turned_rows", F32, (b, h), stride_order=[0, 1], contiguity=[False, True])
    build.input("spread", F32, (b, h), strides=[h * 4, 2])
    build.input("channels", F32, (b, h, 3), stride_order=[2, 0, 1])
    build.input("cpu", F32, (), on_cpu=True)
    build.input("count", I64, None, default=3)
    build.input("flags", I64, None)
    build.output(build.apply("add", build.find_value("rows"), build.find_value("turned_rows")))
    fusion = build.finish()
    text = check_round_trip(fusion)
    assert [i.strides for i in read_text(text).inputs] == [i.strides for i in fusion.inputs]
    assert "  dense: f32[B, H]\n" in text
    assert "    strides: [H * 4, 2]\n" in text


def test_hints_of_strides_are_kept() -> None:
    """A planned stride that is not the dense one is printed with the dims."""
    build = GraphBuilder("hints")
    build.input("x", F32, (build.declare_dim("B", 4), 8), contiguity=[False, True])
    build.output(build.apply("neg", build.find_value("x")))
    fusion = build.finish()
    assert "x.stride0:" not in check_round_trip(fusion)
    dims = tuple(replace(d, default=64) if d.name == "x.stride0" else d for d in fusion.dims)
    assert "  x.stride0: 64\n" in check_round_trip(replace(fusion, dims=dims))


def test_anonymous_dims_and_facts() -> None:
    """Facts and anonymity of dims are printed."""
    build = GraphBuilder("facts")
    size = build.declare_dim("B", 16, multiple_of=8, buckets=[8, 16])
    build.input("x", F32, (size, build.anonymous_dim("i0", 5)))
    build.output(build.apply("neg", build.find_value("x")))
    text = check_round_trip(build.finish())
    assert "  B: {default: 16, multiple_of: 8, buckets: [8, 16]}\n" in text
    assert "  i0: {default: 5, anonymous: true}\n" in text
    assert read_text(text).dims == build.finish().dims


@pytest.mark.parametrize(
    "value",
    [
        Const(True, BOOL),
        Const(3, I64),
        Const(-7, I64),
        Const(1e-5, F64),
        Const(0.5, F32),
        Const(-0.0, F32),
        Const(1e300, F64),
        Const(float("inf"), F32),
        Const(float("-inf"), BF16),
        Const(float("nan"), F32),
    ],
    ids=repr,
)
def test_constants(value: Const) -> None:
    """Constants keep their type, their sign and every digit."""
    build = GraphBuilder("constants")
    x = build.input("x", F32, (4,))
    build.output(build.apply("add", x, value))
    check_round_trip(build.finish())


@pytest.mark.parametrize(
    "doc",
    [
        "",
        "Plain text.",
        "a: b",
        'tabs\tand "quotes"',
        "two\nlines",
        "  lead",
        "# hash",
        "- x",
        "é\n\nb",
    ],
)
def test_docs(doc: str) -> None:
    """Any description reads back."""
    build = GraphBuilder("docs", doc=doc)
    build.output(build.apply("neg", build.input("x", F32, (4,))))
    check_round_trip(build.finish())


SYMBOLS = ("B", "H", "K")


@st.composite
def sizes(draw: st.DrawFn, depth: int = 4) -> Dim:
    """Draw an expression of sizes."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([*map(symbol, SYMBOLS), dim(1), dim(2), dim(5)]))
    left, right = draw(sizes(depth - 1)), draw(sizes(depth - 1))
    kind = draw(st.sampled_from(["add", "sub", "mul", floordiv, ceildiv, mod, minimum, maximum]))
    if kind == "add":
        return left + right
    if kind == "sub":
        return left - right
    if kind == "mul":
        return left * right
    assert not isinstance(kind, str)
    return left if right == 0 else kind(left, right)


@settings(max_examples=200, deadline=None)
@given(sizes())
@pytest.mark.nightly
def test_sizes_read_back(size: Dim) -> None:
    """The text of a size is an expression of the same size."""
    if size.is_const:
        return  # a dim of its own
    text = f"fusion: f\ndims: {{B: 64, H: 64, K: 64, D: '{size}'}}\ninputs: {{x: 'f32[D]'}}\n"
    build = GraphBuilder("f")
    for name in SYMBOLS:
        build.declare_dim(name, 64)
    try:
        value = size.evaluate({name: 64 for name in SYMBOLS})
    except Exception:
        return
    if 0 <= value < 2**40:
        assert read_text(f"{text}outputs: [x]\n").inputs[0].value.shape == (size,)
