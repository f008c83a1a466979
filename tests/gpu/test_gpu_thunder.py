"""A GPT trained through Thunder on a GPU: gradients of the first step and losses, against fp64."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
from paths import ROOT, TESTS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.early,
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("torch", "thunder")),
        reason="needs PyTorch and lightning-thunder",
    ),
]

SCRIPT = TESTS / "thunder_steps.py"
FURTHER = 4.0
"""How many times as far from fp64 as eager PyTorch a result may be: sums have other orders."""
CASES = {
    "f32": ("--dtype", "float32", "--gemms", "inside"),
    "f32, GEMMs outside": ("--dtype", "float32", "--gemms", "outside"),
    "bf16": ("--dtype", "bfloat16", "--gemms", "inside"),
    "bf16, GEMMs outside": ("--dtype", "bfloat16", "--gemms", "outside"),
    "bf16, attention": ("--dtype", "bfloat16", "--gemms", "inside", "--sdpa"),
}
LEAST = {"f32": 1e-6, "bf16": 2e-3}
"""Relative errors of gradients that are never too large: a few roundings of the type."""


@cache
def trained(case: str, *further: str) -> dict[str, Any]:
    """Return what tests/thunder_steps.py says, which installs nvFuser's modules: by a process."""
    torch: Any = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU for PyTorch")
    overriding = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
    environment = {k: v for k, v in os.environ.items() if k not in overriding}
    path = os.pathsep.join(filter(None, (str(ROOT), environment.get("PYTHONPATH"))))
    command = [sys.executable, SCRIPT, *CASES[case], *further]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False,
        env={**environment, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_the_first_step(case: str) -> None:
    found = trained(case, "--steps", "20")
    assert found["fusions"] >= 2
    ours, theirs = found["gradients"]["thunder"], found["gradients"]["eager"]
    least = LEAST[case.partition(",")[0]]
    wrong = {n: (e, theirs[n]) for n, e in ours.items() if not e <= FURTHER * theirs[n] + least}
    assert not wrong, "errors of gradients, Thunder's and eager's"


@pytest.mark.parametrize("case", [c for c in CASES if c.startswith("f32")])
def test_losses_follow_fp64(case: str) -> None:
    losses = trained(case, "--steps", "20")["losses"]
    assert losses["thunder"] <= FURTHER * losses["eager"] + 1e-5


def test_every_region_computes_what_it_says_in_every_step() -> None:
    """The first steps compile; later ones go through launch records and the C launch helper."""
    small = ("--width", "128", "--length", "64", "--layers", "1")
    found = trained("f32", "--steps", "4", "--regions", *small)
    regions = found["regions"]
    assert len(regions) > 4 * 20
    assert [r for r in regions if not r["error"] <= 1e-5] == []
