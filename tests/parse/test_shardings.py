"""How files say that values are divided: read, printed, and refused by position."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fusions

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, dim, floordiv, symbol
from fusec.ir.divided import check_shardings
from fusec.ir.graph import Fusion
from fusec.ir.sharding import STREAM, Mesh, Part, Sharding
from fusec.ir.text import to_text
from fusec.ops.meshes import mesh_of_axes, mesh_of_shape
from fusec.parse import read_text

HEAD = """\
fusion: f
mesh: {dp: 2, tp: 4}
dims: {B: 16, H: 32}
inputs:
  x: {type: "f32[B, H]", shard: {0: dp}}
  c: {type: "f32[B, 24]", stream: 0}
  e: f32 = 1e-5
ops:
  - h = add(x, e)
  - y = relu(h)
outputs:
  - y: {shard: {1: tp}}
"""


def read(text: str = HEAD) -> Fusion:
    """Return the fusion of a file."""
    return read_text(text, "file.yaml")


def parts(fusion: Fusion) -> dict[str, str]:
    """Return what is said, as text."""
    return {name: str(sharding) for name, sharding in fusion.shardings.items()}


def test_every_form_is_read() -> None:
    """Lists are outermost first, negative dims count from the end, the stream is innermost."""
    fusion = read(HEAD + "shardings:\n  h: {shard: {0: [dp, tp], -1: [{stream: 2}, {whole: 4}]}}\n")
    assert fusion.mesh == Mesh((("dp", 2), ("tp", 4)), tuple(range(8)))
    assert parts(fusion) == {
        "x": "{0: dp:2}",
        "c": "{0: stream:B}",
        "y": "{1: tp:4}",
        "h": "{0: dp:2 tp:4, 1: stream:2}",
    }
    both = read(HEAD.replace("stream: 0}", "shard: {0: dp, 1: [{whole: 3}, tp]}, stream: {-2: 4}}"))
    assert parts(both)["c"] == "{0: dp:2 stream:4, 1: _:3 tp:4}"
    left = read(HEAD.replace("stream: 0}", "shard: {1: dp}, stream: 1}"))
    assert parts(left)["c"] == "{1: dp:2 stream:12}"


def test_what_is_said_to_be_whole_is_told_from_what_is_not_said() -> None:
    fusion = read(HEAD.replace("shard: {1: tp}", "shard: {}"))
    assert fusion.shardings["y"].is_whole
    assert "h" not in fusion.shardings


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("[4]", (("mesh", 4),)),
        ("[2, 4]", (("mesh_y", 2), ("mesh_x", 4))),
        ("[1, 2, 4]", (("mesh_z", 1), ("mesh_y", 2), ("mesh_x", 4))),
        ("{dp: 2, tp: 4}", (("dp", 2), ("tp", 4))),
    ],
)
def test_meshes(text: str, axes: tuple[tuple[str, int], ...]) -> None:
    fusion = read(
        f"fusion: f\nmesh: {text}\ninputs: {{x: 'f32[8]'}}\nops: [y = relu(x)]\noutputs: [y]\n"
    )
    assert fusion.mesh is not None
    assert fusion.mesh.axes == axes
    assert f"mesh: {text}\n" in to_text(fusion)


def test_an_output_that_is_copied_has_its_own() -> None:
    """An input that is an output is copied: the two may be divided otherwise."""
    text = HEAD.replace("  - y: {shard: {1: tp}}", "  - y\n  - x: {shard: {1: tp}}")
    assert parts(read(text)) == {"x": "{0: dp:2}", "c": "{0: stream:B}", "x_out": "{1: tp:4}"}


def test_names_are_those_of_the_file() -> None:
    """A nested call that had the name of a later line gives it up."""
    text = HEAD.replace(
        "  - y = relu(h)", "  - u = relu(exp(h))\n  - exp = relu(u)\n  - y = neg(exp)"
    )
    fusion = read(text + "shardings: {exp: {shard: {0: dp}}, u: {stream: 0}}\n")
    assert {"exp", "u"} <= {*fusion.shardings}
    made = fusion.find("exp")
    assert made is not None
    assert fusion.producer[made].inputs == (fusion.find("u"),)


Y = "y: {shard: {1: tp}}"


@pytest.mark.parametrize(
    ("old", "new", "at", "message", "help"),
    [
        ("0: dp", "0: dpp", "dpp", "the mesh has no axis `dpp`", "`dp`"),
        ("0: dp", "0: rows", "rows", "the mesh has no axis `rows`", "axes: dp, tp"),
        ("0: dp", "0: stream", "stream", "not an axis of the mesh", "with `stream`"),
        ("0: dp", "2: dp", "2", "`x` has 2 dims: dim 2 is out of range", ""),
        ("0: dp", "-3: dp", "-3", "`x` has 2 dims: dim -3 is out of range", ""),
        ("0: dp", "B: dp", "B", "expected the number of a dim", ""),
        ("0: dp", "0: dp, 1: dp", "dp}}", "axis `dp` shards `x` twice", ""),
        ("0: dp", "0: [dp, dp]", "dp]", "axis `dp` shards `x` twice", ""),
        ("0: dp", "0: dp, -2: tp", "-2", "dim 0 of `x` is specified twice", ""),
        ("0: dp", "0: [{hole: 2}]", "hole", "unknown field `hole`", "`whole`"),
        ("0: dp", "0: [{}]", "{}]", "expected an axis", ""),
        ("0: dp", "0: [{whole: 0}]", "0}]", "a factor of a dim is at least 1", ""),
        ("0: dp", "0: [{whole: Q}]", "Q}", "undefined name `Q`", ""),
        ("{0: dp}", "0", "0}", "expected the mesh axes of dims", "shard: {0: mesh}"),
        ("{0: dp}", "[dp]", "[dp]", "expected the mesh axes of dims", "shard: {0: mesh}"),
        ("shard: {0: dp}", "shad: {0: dp}", "shad", "unknown field `shad`", "`shard`"),
        ("stream: 0", "shard: {1: [dp, tp, {whole: 2}]}", "2}",
         "dim 1 of `c` has 3 elements left, not "
         "divisible by 2", ""),
        ("stream: 0", "shard: {1: [dp, {stream: 7}]}", "7}",
         "dim 1 of `c` has 12 elements left, not "
         "divisible by 7", ""),
        ("stream: 0", "shard: {1: [{stream: 2}]}, stream: {1: 2}", "2}}",
         "streams divide `c` twice", ""),
        ("stream: 0", "shard: {0: [{stream: 2}]}, stream: 0", "0}", "streams divide `c` twice", ""),
        ("stream: 0", "stream: 2", "2}", "`c` has 2 dims", ""),
        ("stream: 0", "stream: {1: 0}", "0}", "the number of slices is at least 1", ""),
        ("stream: 0", "stream: {1: -2}", "-2}", "the number of slices is at least 1", ""),
        ("stream: 0", "stream: {1: }", "}", "expected the number of slices", ""),
        ("f32[B, 24]\", stream: 0", "f32[0, 24]\", stream: 0", "0}", "dim 0 of `c` has no elements",
         ""),
        ("e: f32 = 1e-5", "e: {type: f32, shard: {}}", "{}}", "`e` is a scalar", "f32[]"),
        ("mesh: {dp: 2, tp: 4}", "doc: none", "dp}}", "the file has no `mesh`", "mesh: [4]"),
        ("{dp: 2, tp: 4}", "4", "4\n", "expected a mesh", "mesh: [4]"),
        ("{dp: 2, tp: 4}", "{dp: 2, tp: 0}", "0}", "a mesh axis has at least 1 rank, found 0", ""),
        ("{dp: 2, tp: 4}", "[2, -1]", "-1", "a mesh axis has at least 1 rank, found -1", ""),
        ("{dp: 2, tp: 4}", "[2, B]", "B]", "expected the size of a mesh axis", ""),
        ("{dp: 2, tp: 4}", "{dp: 2, stream: 4}", "stream", "`stream` is reserved", ""),
        ("{dp: 2, tp: 4}", "{dp: 2, f32: 4}", "f32", "a keyword of fusion files", ""),
        ("{dp: 2, tp: 4}", "[1, 2, 2, 2]", "[1", "a mesh of 4 axes needs names", "mesh: {a: 2"),
        ("{dp: 2, tp: 4}", "[]", "[]", "a mesh without axes", ""),
        ("{dp: 2, tp: 4}", "{}", "{}", "the mesh has no axes", "mesh: [4]"),
        ("{dp: 2, tp: 4}", "[65536, 2]", "[65", "more than 65536 ranks", ""),
        (Y, "y: {shards: {}}", "shards", "unknown field `shards`", "`shard`"),
        (Y, "y: {shard: {2: tp}}", "2: tp", "`y` has 2 dims", ""),
    ],
)  # fmt: skip
def test_mistakes_are_placed(old: str, new: str, at: str, message: str, help: str) -> None:
    assert old in HEAD
    check(HEAD.replace(old, new, 1), at, message, help, after=new)


@pytest.mark.parametrize(
    ("line", "at", "message", "help"),
    [
        ("q: {shard: {}}", "q", "undefined name `q`", "a sharding"),
        ("hh: {shard: {}}", "hh", "undefined name `hh`", "`h`"),
        ("B: {shard: {}}", "B", "`B` is a dim", ""),
        ("e: {shard: {}}", "{}", "`e` is a scalar and cannot be sharded", ""),
        ("x: {shard: {}}", "x", "`x` has two shardings", "keep one"),
        ("y: {stream: 0}", "y", "`y` has two shardings", "keep one"),
        ("h: dp", "dp", "expected the sharding of `h`", "shard: {1: mesh}"),
        ("h: {}", "{}", "expected the sharding of `h`", "shard: {1: mesh}"),
        ("h: {alias: x}", "alias", "unknown field `alias`", "shard, stream"),
    ],
)
def test_mistakes_in_shardings_are_placed(line: str, at: str, message: str, help: str) -> None:
    check(f"{HEAD}shardings:\n  {line}\n", at, message, help, after=f"  {line}")


def check(text: str, at: str, message: str, help: str, *, after: str) -> None:
    """Check that a file has one error, at the text `at` in what was put there, or behind it."""
    with pytest.raises(FusecError) as caught:
        read(text)
    found, span = caught.value.diagnostic, caught.value.diagnostic.span
    assert message in found.message, found.render()
    assert help in (found.help or ""), found.render()
    assert span is not None
    offset = sum(len(line) + 1 for line in text.split("\n")[: span.line - 1]) + span.column - 1
    assert text[offset:].startswith(at), found.render()
    begin = text.index(after)
    assert offset >= begin or "no `mesh`" in message, found.render()
    assert caught.value.more == () or "no `mesh`" in message, caught.value.render()


def test_a_wrong_mesh_is_the_only_error() -> None:
    """What is divided along its axes is not judged."""
    with pytest.raises(FusecError) as caught:
        read(HEAD.replace("tp: 4", "tp: 0"))
    assert caught.value.more == ()


# -- text


def factors(draw: Any, extent: Dim, axes: list[str], mesh: Mesh | None) -> tuple[Part, ...]:
    """Return drawn factors of a dim; axes that are used are removed."""
    found: list[Part] = []
    left = extent
    for _ in range(draw(st.integers(0, 3))):
        axis = draw(st.sampled_from([None, *axes]))
        sizes = [dim(1), dim(2), dim(3), symbol("A"), floordiv(symbol("B"), 2), extent]
        parts = draw(st.sampled_from(sizes))
        if axis is not None and axis != STREAM:
            assert mesh is not None
            parts = dim(mesh.extent(axis))
        own = left.divide(parts)
        if parts == 0 or (own is None and left.is_const and parts.is_const):
            continue
        if axis is not None:
            axes.remove(axis)
        left = floordiv(left, parts) if own is None else own
        found.append(Part(axis, parts))
    return tuple(found)


@st.composite
def divided(draw: Any) -> Fusion:
    """Return a drawn fusion with drawn shardings of drawn values."""
    fusion: Fusion = draw(fusions())
    sizes = st.lists(st.integers(1, 3), min_size=1, max_size=3)
    mesh = draw(st.one_of(
        st.none(), sizes.map(mesh_of_shape),
        sizes.map(lambda s: mesh_of_axes([(f"m{k}", size) for k, size in enumerate(s)])),
    ))  # fmt: skip
    shardings: dict[str, Sharding] = {}
    symbols = {"A", "B"} <= {*fusion.hints}
    for value in fusion.values:
        if value.is_scalar or not symbols or not draw(st.booleans()):
            continue
        axes = [STREAM, *(name for name, _ in (mesh.axes if mesh else ()))]
        dims = tuple(factors(draw, extent, axes, mesh) for extent in value.shape)
        shardings[value.name] = Sharding(dims).normal
    return replace(fusion, mesh=mesh, shardings=shardings)


@settings(max_examples=25, deadline=None)
@given(divided())
def test_drawn_shardings_round_trip(fusion: Fusion) -> None:
    text = to_text(fusion)
    again = read_text(text)
    assert again == fusion, text
    assert parts(again) == parts(fusion)
    assert to_text(again) == text


def test_a_sharding_counts_for_equality() -> None:
    """Or a round trip could lose it."""
    fusion = read()
    assert replace(fusion, shardings={}) != fusion
    assert replace(fusion, mesh=mesh_of_axes([("dp", 2), ("tp", 2)])) != fusion


# -- what verification finds in fusions that no file made


@pytest.mark.parametrize(
    ("name", "sharding", "message"),
    [
        ("q", Sharding.whole(2), "no operation produces"),
        ("e", Sharding.whole(0), "cannot be divided"),
        ("x", Sharding.whole(3), "cannot be divided"),
        ("x", Sharding.of(2, {0: (Part("up", dim(2)),)}), "not an axis of the mesh"),
        ("x", Sharding.of(2, {0: (Part("dp", dim(3)),)}), "an axis of 2 ranks"),
        ("x", Sharding.of(2, {0: (Part("dp", dim(2)),), 1: (Part("dp", dim(2)),)}), "twice"),
        (
            "c",
            Sharding.of(2, {1: (Part("dp", dim(2)), Part(STREAM, dim(5)))}),
            "not divisible by 10",
        ),
    ],
)
def test_verification(name: str, sharding: Sharding, message: str) -> None:
    fusion = read()
    check_shardings(fusion)
    with pytest.raises(FusecError, match=message):
        check_shardings(replace(fusion, shardings={name: sharding}))
