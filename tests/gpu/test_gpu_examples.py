"""Every example on the GPU: at its default sizes, and at small, odd and prime ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_check import DRY, check_on_gpu
from gpu_order import marked_early
from paths import ROOT

from fusec.cli import run_main
from fusec.diagnostics import FusecError
from fusec.ir.dim import symbol
from fusec.ir.graph import Fusion
from fusec.ops.limits import check_extrema
from fusec.parse import read_text

pytestmark = pytest.mark.gpu

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
PRIMES = (13, 7, 17, 5, 3)
LONG = 4097
LONG_SQUARE = 1025
NAMES = [p.stem for p in EXAMPLES]


def load(name: str) -> Fusion:
    path = next(p for p in EXAMPLES if p.stem == name)
    return read_text(path.read_text(), path.name)


def without_facts(fusion: Fusion) -> Fusion:
    """Return the fusion without the declared multiples, so that any size is allowed."""
    return replace(fusion, dims=tuple(replace(d, multiple_of=1) for d in fusion.dims))


def free_dims(fusion: Fusion) -> list[str]:
    """Return the dims that one may choose: declared by name, and no scalar inputs."""
    scalars = {i.value.name for i in fusion.inputs if i.value.is_scalar}
    return [d.name for d in fusion.dims if "." not in d.name and d.name not in scalars]


def variants(fusion: Fusion) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield sizes by label: all 1, all 7, primes, one long dim at a time, and one dim of 0."""
    dims = free_dims(fusion)
    yield "ones", dict.fromkeys(dims, 1)
    yield "sevens", dict.fromkeys(dims, 7)
    yield "primes", {name: PRIMES[k % len(PRIMES)] for k, name in enumerate(dims)}
    yield "even", {name: 8 * (k + 1) for k, name in enumerate(dims)}
    for name in dims:
        square = any(v.shape.count(symbol(name)) > 1 for node in fusion.nodes for v in node.outputs)
        long = LONG_SQUARE if square else LONG
        yield f"long-{name}", {**dict.fromkeys(dims, 3), name: long}
    for name in dims[:1]:
        empty = {**dict.fromkeys(dims, 8), name: 0}
        with suppress(FusecError):  # no elements have no largest one
            check_extrema(fusion, empty)
            yield f"empty-{name}", empty


CASES = [
    pytest.param(name, sizes, id=f"{name}-{label}")
    for name, fusion in ((name, load(name)) for name in NAMES)
    for label, sizes in variants(fusion)
    if free_dims(fusion)
]


@pytest.mark.skipif(bool(DRY), reason="takes long without a GPU")
@pytest.mark.parametrize("name", [marked_early(n, {"seed_2146", "attention"}) for n in NAMES])
def test_default_sizes(name: str) -> None:
    check_on_gpu(load(name))


@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_other_sizes(name: str, sizes: dict[str, int]) -> None:
    check_on_gpu(without_facts(load(name)), sizes)


@pytest.mark.skipif(bool(DRY), reason="needs a GPU")
def test_run_prints_the_verdict(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(next(p for p in EXAMPLES if p.stem == "softmax"))
    saved = str(tmp_path / "out.npz")
    common = ["--set", "B=64", "--set", "H=256"]
    assert run_main(["run", path, *common, "--outputs", saved]) == 0
    text = capsys.readouterr().out
    assert "verified" in text
    assert "softmax_inner_persistent" in text
    assert run_main(["run", path, *common, "--expect", saved]) == 0


@pytest.mark.skipif(bool(DRY), reason="needs a GPU")
def test_a_compiled_folder_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(next(p for p in EXAMPLES if p.stem == "layernorm"))
    folder = tmp_path / "out"
    assert run_main(["compile", path, "-o", str(folder), "--set", "B=64", "--set", "H=512"]) == 0
    assert json.loads((folder / "manifest.json").read_text())
    assert run_main(["run", str(folder)]) == 0
    assert "verified" in capsys.readouterr().out


@pytest.mark.skipif(bool(DRY), reason="needs a GPU")
def test_a_script_runs(capsys: pytest.CaptureFixture[str]) -> None:
    path = next(p for p in EXAMPLES if p.stem == "rmsnorm_residual").with_suffix(".py")
    assert run_main(["run", str(path), "--set", "T=33"]) == 0
    assert "verified" in capsys.readouterr().out
