"""Outputs of programs that keep scores of attention in f32, where the fusion rounds them."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cli_tools import fusec

from fusec import FusionDefinition
from fusec.diagnostics import FusecError
from fusec.parse.dsl.datatype import DataType
from fusec.parse.reader import read_text
from fusec.reference.definitions import other_definitions

SHAPE = (1, 2, 128, 64)
BF16 = ml_dtypes.bfloat16
TEXT = """\
fusion: attention
inputs:
  q: bf16[1, 2, 128, 64]
  k: bf16[1, 2, 128, 64]
  v: bf16[1, 2, 128, 64]
ops:
  - scores = matmul(q, permute(k, [0, 1, 3, 2]))
  - p = cast(softmax(mul(cast(scores, f32), 0.125), 3), bf16)
  - o = matmul(p, v)
outputs: [o]
"""
EARLY = "`scores` kept in f32, `p` rounded before the division"
KINDS = {"weights rounded": "`scores` kept in f32", "early": EARLY, "not rounded": EARLY}


STEEP = 6


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(BF16).astype(np.float64)


@cache
def inputs(deviation: float = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(0, deviation, SHAPE).astype(BF16) for name in "qkv"}


@cache
def attention(kind: str, deviation: float = 2) -> np.ndarray:
    """Return attention whose scores are kept, its weights rounded in several places."""
    q, k, v = (a.astype(np.float64) for a in inputs(deviation).values())
    scores = q @ np.swapaxes(k, -1, -2) * 0.125
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total = powers.sum(axis=-1, keepdims=True)
    if kind == "weights rounded":
        return rounded(powers / total) @ v
    return (rounded(powers) if kind == "early" else powers) @ v / total


def expect(
    outputs: np.ndarray, folder: Path, capsys: pytest.CaptureFixture[str], *options: object
) -> tuple[int, str]:
    path, given, wanted = (folder / n for n in ("a.yaml", "in.npz", "out.npz"))
    path.write_text(TEXT)
    np.savez(given, **{n: a.view(np.uint16) for n, a in inputs().items()})
    np.savez(wanted, o=outputs.astype(BF16).view(np.uint16))
    files = ("--inputs", given, "--expect", wanted)
    done = fusec(capsys, "run", path, "--device", "reference", *files, *options)
    return done.code, done.out


@pytest.mark.parametrize("kind", KINDS)
def test_scores_kept_in_f32_are_accepted_by_name(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = expect(attention(kind), tmp_path, capsys)
    assert code == 0
    assert f"by an equivalent definition: with {KINDS[kind]}\n" in text


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_outputs_follow_no_definition(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = attention(kind)
    for wrong in (right * 1.02, right * 0.98, np.roll(right, 1, 2), np.zeros_like(right)):
        code, text = expect(wrong, tmp_path, capsys)
        assert code == 1
        assert "elements differ from" in text
    stale = right.copy()
    stale[..., -2:, :] = right[..., :2, :]
    code, text = expect(stale, tmp_path, capsys)
    assert (code, "by another definition" in text) == (1, False)


def test_the_element_of_the_file_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = attention("weights rounded").copy()
    wrong[0, 1, 5, 7] = 100
    _, text = expect(wrong, tmp_path, capsys)
    assert "first at [0, 1, 5, 7]: " in text
    assert "expected 100" in text


def test_what_a_definition_keeps() -> None:
    found = [d.text for d in other_definitions(read_text(TEXT, "a.yaml"))]
    assert found == ["`scores` kept in f32", EARLY]
    twice = TEXT.replace("mul(cast(scores, f32), 0.125)", "cast(mul(scores, 0.125), f32)")
    found = [d.text for d in other_definitions(read_text(twice, "a.yaml"))]
    assert found[2] == "`scores`, `mul_1` kept in f32"
    rest = "fusion: t\ninputs: {x: 'bf16[8]'}\nops: ['y = exp(x)']\noutputs: [y]\n"
    assert not list(other_definitions(read_text(rest, "t.yaml")))


def definition() -> FusionDefinition:
    with FusionDefinition("attention") as fd:
        q, k, v = (
            fd.define_tensor(SHAPE, contiguity=True, dtype=DataType.BFloat16) for _ in range(3)
        )
        scores = fd.ops.matmul(q, fd.ops.permute(k, [0, 1, 3, 2]))
        wide = fd.ops.mul(fd.ops.cast(scores, dtype=DataType.Float), 0.125)
        powers = fd.ops.exp(fd.ops.sub(wide, fd.ops.max(wide, [3], keepdim=True)))
        weights = fd.ops.div(powers, fd.ops.sum(powers, [3], keepdim=True))
        fd.add_output(fd.ops.matmul(fd.ops.cast(weights, dtype=DataType.BFloat16), v))
    return fd


@pytest.mark.parametrize("kind", KINDS)
def test_validate_accepts_them(kind: str) -> None:
    """Roundings after each operation would leave it open: of so steep weights all may turn."""
    given, right = list(inputs(STEEP).values()), attention(kind, STEEP)
    with pytest.warns(
        UserWarning, match="the references match an equivalent definition: with `scores` kept"
    ):
        definition().validate(given, [right.astype(BF16)])
    with pytest.raises(FusecError, match="differs from the reference"):
        definition().validate(given, [np.zeros(SHAPE, BF16)])
    with pytest.warns(UserWarning, match="is inconclusive"):
        definition().validate(given, [(right * 1.02).astype(BF16)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = definition().execute(given)
        definition().validate(given, own)


def test_steep_weights_are_decided() -> None:
    """Of most rows one weight is nearly 1, however far scores are off that are rounded."""
    given, right = list(inputs().values()), attention("not rounded")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        definition().validate(given, [right.astype(BF16)])
    with pytest.raises(FusecError, match="differs from the reference"):
        definition().validate(given, [(right * 1.3).astype(BF16)])
