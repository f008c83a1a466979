"""Every example at small sizes: f32 arithmetic passes the verifier, mutations of outputs fail."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT
from simulated import simulate

from fusec.ir.evaluate import Sizes, extents
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.verdict import Verdict, compare
from fusec.run.inputs import choose_sizes, random_inputs

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
LARGEST = 1 << 20


def small_sizes(fusion: Fusion) -> dict[str, int]:
    """Return sizes cut to at most 40, as far as the declared facts allow."""
    scalars = {i.value.name for i in fusion.inputs if i.value.is_scalar}
    given: dict[str, int] = {}
    for fact in fusion.dims:
        if fact.anonymous or "." in fact.name or fact.name in scalars:
            continue
        size = fact.default
        while size > 40:
            size //= 2
        given[fact.name] = max(size - size % fact.multiple_of, fact.multiple_of)
    return choose_sizes(fusion, given)


def elements(fusion: Fusion, sizes: Sizes) -> int:
    return max(int(np.prod(extents(v.type, sizes), dtype=np.int64)) for v in fusion.values)


@lru_cache(maxsize=1)
def example(path: Path) -> tuple[Fusion, dict, dict, dict]:
    text = path.read_text()
    if path.stem == "seed_2146":  # its sizes are constants
        text = re.sub(r"\b56\b", "5", re.sub(r"\b1024\b", "24", text))
    fusion = read_text(text, path.name)
    sizes = small_sizes(fusion)
    assert elements(fusion, sizes) < LARGEST
    inputs = random_inputs(fusion, sizes, seed=11)
    return fusion, sizes, inputs, simulate(fusion, inputs, sizes)


def with_change(path: Path, which: int, change) -> Verdict:
    fusion, sizes, inputs, outputs = example(path)
    name = fusion.outputs[which].value.name
    changed = outputs[name].copy()
    change(changed.reshape(-1))
    return compare(fusion, sizes, inputs, {**outputs, name: changed})


def one_off(flat: np.ndarray) -> None:
    at = int(np.argmax(np.abs(flat.astype(np.complex128))))
    flat[at] = flat[at] * np.float32(1.05)


def wrong_index(flat: np.ndarray) -> None:
    wide = flat.real.astype(np.float64)
    low, high = int(np.argmin(wide)), int(np.argmax(wide))
    flat[[low, high]] = flat[[high, low]]


def dropped_tail(flat: np.ndarray) -> None:
    flat[-8:] = 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_f32_arithmetic_passes(path: Path):
    fusion, sizes, inputs, outputs = example(path)
    verdict = compare(fusion, sizes, inputs, outputs)
    assert verdict.ok, verdict.text()


@pytest.mark.parametrize("change", [one_off, wrong_index, dropped_tail])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_mutations_fail(path: Path, change):
    fusion = example(path)[0]
    for which, output in enumerate(fusion.outputs):
        if change is wrong_index and not output.value.shape:
            continue  # one element has no other place
        verdict = with_change(path, which, change)
        assert not verdict.ok, f"{output.value.name}\n{verdict.text()}"
