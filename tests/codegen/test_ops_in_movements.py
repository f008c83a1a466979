"""Each elementwise, random or positional operation works inside every movement that branches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from families import plan_of, wrong_on_host
from ops_in_movements import MOVES, SHAPES, cases, fusion_in, random

from fusec.codegen.dispatch import plan_sources
from fusec.codegen.source import KernelSource
from fusec.ir.dtype import F32
from fusec.run.binary.headers import device_headers
from fusec.run.binary.nvrtc import CompileError, compile_ptx

INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)
EVERY = 3
"""Of the kernels, each EVERY-th one is compiled in every run, and all of them nightly."""
ON_HOST = 61
"""Of the kernels, each ON_HOST-th one runs on the emulator."""


@cache
def sources(every: int) -> list[KernelSource]:
    plans = [plan_of("pointwise", case.fusion) for case in cases()[::every]]
    return [source for plan in plans for source in plan_sources(plan)]


def compile_together(kernels: Sequence[KernelSource]) -> str:
    """Return the PTX of kernels that are one translation unit, each in its own namespace."""
    includes = dict.fromkeys(line for k in kernels for line in INCLUDE.findall(k.text))
    parts = [f"namespace {k.name}_only {{\n{INCLUDE.sub('', k.text)}\n}}" for k in kernels]
    return compile_ptx(
        "".join([*includes, *parts]),
        name="together",
        arch="sm_90a",
        headers=device_headers(),
        options=("--Ofast-compile=max",),
    )


def assert_compile(kernels: Sequence[KernelSource]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    assert compile_together(kernels).count(".entry") == len(kernels)


@pytest.mark.nightly
def test_a_third_of_the_kernels_compiles() -> None:
    kernels = sources(EVERY)
    assert len(kernels) > 280
    assert_compile(kernels)


@pytest.mark.nightly
def test_all_kernels_compile() -> None:
    assert_compile(sources(1))


def test_a_name_that_nothing_declares_is_found() -> None:
    """Without the line that loads the seed, as before arms left it out of their conditions."""
    pytest.importorskip("cuda.bindings.nvrtc")
    fusion = fusion_in("f", MOVES["cat"], random("normal", F32, "unseeded"), SHAPES[0])
    (source,) = plan_sources(plan_of("pointwise", fusion))
    assert "rng_seed_value = rng_seed[0]" in source.text
    broken = replace(source, text=re.sub(r".*rng_seed_value = .*\n", "", source.text))
    with pytest.raises(CompileError, match="rng_seed_value"):
        compile_together([broken])


@pytest.mark.parametrize("moved", MOVES)
@pytest.mark.parametrize("seeds", ["unseeded", "tensor"])
def test_a_seed_is_read_once_per_thread(moved: str, seeds: str) -> None:
    """Seeds are the same for all elements: no arm tests its own condition to read them."""
    fusion = fusion_in("f", MOVES[moved], random("uniform", F32, seeds), SHAPES[0])
    (source,) = plan_sources(plan_of("pointwise", fusion))
    assert "rng_seed[0] :" not in source.text
    assert "seeds[1] :" not in source.text


def test_a_sample_is_right_on_the_host(tmp_path: Path) -> None:
    chosen = cases()[::ON_HOST]
    assert len(chosen) > 12
    assert not wrong_on_host([plan_of("pointwise", c.fusion) for c in chosen], tmp_path)
