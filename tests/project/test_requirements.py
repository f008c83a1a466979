"""What is installed: the extras fit the base, and each brings the CUDA that it names."""

from __future__ import annotations

import tomllib

import pytest
from packaging.requirements import Requirement
from paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CUDA = {"cu12": "12.9.4", "dev": "13.0.2"}
"""A version of cuda-python that each extra must take, beside the base."""


def requirements(extra: str | None) -> list[Requirement]:
    listed = PROJECT["dependencies"]
    listed = listed + (PROJECT["optional-dependencies"][extra] if extra else [])
    return [Requirement(text) for text in listed]


@pytest.mark.parametrize("extra", [None, *PROJECT["optional-dependencies"]])
def test_extras_fit_the_base(extra: str | None) -> None:
    version = CUDA.get(extra or "", "13.0.2")
    found = [r for r in requirements(extra) if r.name == "cuda-python"]
    assert found
    for requirement in found:
        assert requirement.specifier.contains(version), f"{extra}: {requirement}"


def test_the_extra_for_cuda_12_takes_nothing_newer() -> None:
    found = [r for r in requirements("cu12") if r.name == "cuda-python"]
    assert not all(r.specifier.contains("13.0.2") for r in found)
    assert any(r.name == "nvidia-cuda-nvrtc-cu12" for r in requirements("cu12"))
