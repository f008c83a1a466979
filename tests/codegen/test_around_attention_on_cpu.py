"""Operations before and after an attention, on the host: segments of their own where need be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attentions import PLAIN, attention
from nightly import mostly_nightly
from segments_on_cpu import kernels_of, planned, wrong
from test_regressions import FOLDER

from fusec.parse import read_text
from fusec.passes import run_pipeline
from fusec.schedule.attention.decode.problem import find_decode
from fusec.schedule.attention.forward.problem import find_attention
from fusec.segment import regions
from fusec.segment.protocol import Refusal

SDPFA = "o, lse, a, b = sdpfa_fwd(q, k, v)"
AFTER = {
    "the largest output": ("m = max(abs(o))", "o, m"),
    "sums of features": ("m = sum(o, dims=[3])", "o, m"),
    "a norm": ("m = layer_norm(cast(o, f32), [64])", "m"),
    "an index": ("m = argmax(cast(o, f32), dim=3)", "m"),
    "heads summed": ("m = sum(lse, dims=[1])", "o, m"),
    "features of both ends": ("m = add(o, flip(o, [3]))", "o, m"),
    "another head": ("m = add(lse, flip(lse, [1]))", "o, m"),
}
"""What follows an attention, and outputs."""
BEFORE = {
    "a norm of queries": "x = cast(rms_norm(cast(q, f32), [64]), bf16)",
    "sums of queries": "x = cast(cumsum(cast(q, f32), dim=2), bf16)",
    "the largest query": "x = div(q, max(abs(q)))",
}
"""What comes before an attention: its queries `x`."""


@pytest.mark.parametrize("m", mostly_nightly([40, 9], 2))
@pytest.mark.parametrize("name", AFTER)
def test_after_an_attention(name: str, m: int, tmp_path: Path) -> None:
    line, outputs = AFTER[name]
    text = attention(SDPFA, line, m=m, n=90, outputs=outputs)
    assert kernels_of(planned(text))[0] == ("attention" if m > 16 else "attention_decode")
    assert wrong(text, tmp_path) == ""


@pytest.mark.parametrize("m", mostly_nightly([1, 40, 9], 3))
@pytest.mark.parametrize("name", BEFORE)
def test_before_an_attention(name: str, m: int, tmp_path: Path) -> None:
    text = attention(BEFORE[name], SDPFA.replace("(q", "(x"), m=m, n=90)
    assert kernels_of(planned(text))[-1] == ("attention" if m > 16 else "attention_decode")
    assert wrong(text, tmp_path) == ""


def normed(*lines: str, m: int = 40, **keywords: Any) -> str:
    """Return an attention of queries and keys behind RMS norms of their features, `x` and `z`."""
    norms = (
        f"{new} = mul(cast(rms_norm(cast({old}, f32), [64]), bf16), w)"
        for new, old in (("x", "q"), ("z", "k"))
    )
    inputs = "  w: bf16[64]\n" + keywords.pop("inputs", "")
    return attention(*norms, *lines, inputs=inputs, m=m, n=90, **keywords)


NORMED = {
    "forward, of parts": (
        ["s = mul(cast(matmul(x, permute(z, [0, 1, 3, 2])), f32), 0.125)", PLAIN[1]], "o",
    ),
    "forward": ([SDPFA.replace("(q, k", "(x, z")], "o"),
    "backward": (["dq, dk, dv = sdpfa_bwd(g, x, z, v, y, lse)"], "dq, dk, dv"),
    "both": (
        [SDPFA.replace("(q, k", "(x, z"), "dq, dk, dv = sdpfa_bwd(g, x, z, v, o, lse)"],
        "o, dq, dk, dv",
    ),
}  # fmt: skip
"""Attentions of `x` and `z`, and their outputs; `g`, `y` and `lse` are inputs of a backward."""


def normed_text(name: str, **keywords: Any) -> str:
    lines, outputs = NORMED[name]
    given = ["g: bf16[1, 2, {m}, 64]"] if outputs != "o" else []
    given += ["y: bf16[1, 2, {m}, 64]", "lse: f32[1, 2, {m}]"] if name == "backward" else []
    inputs = "".join(f"  {each}\n" for each in given)
    return normed(*lines, inputs=inputs, outputs=outputs, **keywords)


@pytest.mark.parametrize("name", mostly_nightly(NORMED, 4))
def test_norms_of_queries_and_keys_stay_before_an_attention(name: str) -> None:
    """Keys are transposed, and cast, in the attention's segment: in memory they are rows."""
    kinds = kernels_of(planned(normed_text(name, m=1000 if name == "both" else 40)))
    assert "matmul" not in kinds
    assert ("attention_backward" in kinds) == (name in ("backward", "both"))
    assert ("attention" in kinds) == (name != "backward")


@pytest.mark.nightly
@pytest.mark.parametrize("m", [1, 40])
def test_norms_of_queries_and_keys(m: int, tmp_path: Path) -> None:
    assert wrong(normed_text("forward, of parts", m=m), tmp_path) == ""


@pytest.mark.nightly
def test_keys_that_are_transposed_by_their_norm_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_is_view", lambda piece: False)
    assert "matmul" in kernels_of(planned(normed_text("forward, of parts")))


REFUSED = {
    "a reduction": ("m = max(o, dims=[3])", "`max` reduces what follows `o`"),
    "two places": ("m = add(o, flip(o, [3]))", "`m` reads several elements of `o`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_case_is_refused(name: str) -> None:
    line, because = REFUSED[name]
    for m, find in ((40, find_attention), (9, find_decode)):
        fusion = run_pipeline(read_text(attention(*PLAIN, line, m=m, outputs="o, m")))
        found = find(fusion)
        assert isinstance(found, Refusal)
        assert found.because == because


@pytest.mark.nightly
def test_scores_of_two_places_are_no_attention(tmp_path: Path) -> None:
    text = attention("s = add({scores}, flip({scores}, [3]))", PLAIN[1], m=40)
    assert "attention" not in kernels_of(planned(text))
    assert wrong(text, tmp_path) == ""


@pytest.mark.parametrize(
    "name", mostly_nightly(["attention_then_amax", "attention_decode_with_query_norm"], 2)
)
def test_an_attention_that_was_not_built(name: str, tmp_path: Path) -> None:
    assert wrong((FOLDER / f"{name}.yaml").read_text(), tmp_path) == ""
