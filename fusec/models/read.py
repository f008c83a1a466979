"""Files that `fusec import` takes: archives of torch.export, and recordings of ATen graphs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.models.archive import opened_archive
from fusec.models.convert import Converted, converted
from fusec.models.exported import exported_graph
from fusec.models.fusion_text import fusion_text
from fusec.models.recorded import recorded_graphs
from fusec.models.weights import Weight, Weights
from fusec.ops.names import MOST_LETTERS, is_name

_FOREIGN = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class Imported:
    """A model as a fusion: its lines, the file, and its weights by the names of inputs."""

    model: Converted
    text: str
    fusion: Fusion
    weights: dict[str, Weight]


def imported(path: str) -> Iterator[Imported]:
    """Yield the graphs of a file as fusions; FusecError names the node that cannot be one."""
    if os.path.isdir(path):
        raise FusecError(f"`{path}` is a directory, not an archive of torch.export")
    if Path(path).suffix == ".json":
        for graph in recorded_graphs(path):
            model = converted(graph)
            yield Imported(model, *fusion_text(model), {})
        return
    with opened_archive(path) as archive:
        model = converted(exported_graph(archive, _name_of(path)))
        text, fusion = fusion_text(model)
        stored = Weights(archive)
        weights = {n: stored.of(entry) for n, entry in model.inputs if entry.kind != "input"}
        yield Imported(model, text, fusion, weights)


def _name_of(path: str) -> str:
    """Return the name of a model: that of its file."""
    plain = _FOREIGN.sub("_", Path(path).stem).strip("_")[:MOST_LETTERS]
    return plain if is_name(plain) else f"model_{plain}"[:MOST_LETTERS].rstrip("_")
