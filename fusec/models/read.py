"""Reads the files of `fusec import`: archives of torch.export, and recordings of ATen graphs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.models.archive import opened_archive
from fusec.models.calls import Call
from fusec.models.convert import Converted, converted
from fusec.models.exported import exported_graph
from fusec.models.parts import Part, parts_of, with_late_writes
from fusec.models.recorded import recorded_graphs
from fusec.models.weights import Weight, Weights
from fusec.ops.names import MOST_LETTERS, is_name

_FOREIGN = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class Imported:
    """A model: its lines, its fusions and external calls, and its weights by names of inputs."""

    model: Converted
    steps: tuple[Part | Call, ...]
    weights: dict[str, Weight]

    @property
    def parts(self) -> list[Part]:
        """Return the fusions; only one without external calls."""
        return [step for step in self.steps if isinstance(step, Part)]

    @property
    def calls(self) -> list[Call]:
        """Return the external calls."""
        return [step for step in self.steps if isinstance(step, Call)]

    @property
    def fusion(self) -> Fusion:
        """Return the fusion of a model without external calls."""
        (part,) = self.parts
        return part.fusion

    @property
    def text(self) -> str:
        """Return the fusion file of a model without external calls."""
        (part,) = self.parts
        return part.text


def imported(path: str, external: Collection[str] = ()) -> Iterator[Imported]:
    """Yield the graphs of a file as fusions; FusecError names an unsupported node.

    external: further targets of ATen that become external calls.
    """
    if os.path.isdir(path):
        raise FusecError(f"`{path}` is a directory, not an archive of torch.export")
    if Path(path).suffix == ".json":
        for graph in recorded_graphs(path):
            model = with_late_writes(converted(graph, external))
            yield Imported(model, tuple(parts_of(model)), {})
        return
    with opened_archive(path) as archive:
        model = with_late_writes(converted(exported_graph(archive, _name_of(path)), external))
        steps = tuple(parts_of(model))
        stored = Weights(archive)
        weights = {n: stored.of(entry) for n, entry in model.inputs if entry.kind != "input"}
        yield Imported(model, steps, weights)


def _name_of(path: str) -> str:
    """Return the name of a model: that of its file."""
    plain = _FOREIGN.sub("_", Path(path).stem).strip("_")[:MOST_LETTERS]
    return plain if is_name(plain) else f"model_{plain}"[:MOST_LETTERS].rstrip("_")
