"""What a suite times: a fusion at some sizes, and the PyTorch function that computes the same."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fusec import driver
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse.reader import read_text

WORKLOADS = Path(__file__).parent / "workloads"
EXAMPLES = Path(__file__).parent.parent / "examples"
MODULES = (
    "rows", "elements", "attentions", "attention_backwards", "generated_functions", "products",
    "operands",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A workload at some sizes.

    file: its name without the ending, in `workloads/`, or a path; text: the file's text where it is
    made up. function: its PyTorch function, by default named as the file; drawn: whether it draws
    random numbers, so that nobody else has its results. distinct: inputs that name each place of a
    dim once at most. free: the file's `segments:` are left out.
    """

    name: str
    file: str
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    text: str = ""
    function: str = ""
    drawn: bool = False
    distinct: Mapping[str, str] = field(default_factory=dict[str, str])
    free: bool = False

    @cached_property
    def fusion(self) -> Fusion:
        """Return the fusion, with the row's sizes as its defaults."""
        if self.text:
            fusion = read_text(self.text, self.name)
        else:
            path = Path(self.file) if "/" in self.file else WORKLOADS / f"{self.file}.yaml"
            (found,) = driver.programs(str(path), CompileOptions(sizes=self.sizes))
            fusion = found.original
        return replace(fusion, pins=()) if self.free else fusion

    def torch_function(self) -> Callable[..., Any]:
        """Return the PyTorch function of the inputs; needs PyTorch."""
        name = self.function or Path(self.file).stem
        function = functions()[name]
        kinds = inspect.signature(function).parameters.values()
        dims = {
            p.name: self.fusion.hints[p.name]
            for p in kinds
            if p.kind is p.KEYWORD_ONLY and p.name != "f"
        }
        if not dims:
            return function

        def sized(*given: Any, **named: Any) -> Any:
            return function(*given, **named, **dims)

        return sized

    def given(self) -> dict[str, Any]:
        """Return the elements of inputs that are not drawn like others."""
        found: dict[str, Any] = {}
        for name, dim in self.distinct.items():
            generator = np.random.default_rng(len(name))
            (entry,) = (i for i in self.fusion.inputs if i.value.name == name)
            places = generator.permutation(self.fusion.hints[dim])
            count = entry.value.shape[0].evaluate(self.fusion.hints)
            found[name] = places[:count].astype(entry.value.dtype.numpy)
        return found


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """Return the PyTorch functions by name; needs PyTorch."""
    found: dict[str, Callable[..., Any]] = {}
    for module in MODULES:
        known = vars(importlib.import_module(f"benchmarks.workloads.{module}"))
        own = {n: v for n, v in known.items() if inspect.isfunction(v) and not n.startswith("_")}
        found |= {n: v for n, v in own.items() if v.__module__ == f"benchmarks.workloads.{module}"}
    return found
