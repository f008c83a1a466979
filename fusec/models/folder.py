"""A folder of a model: `fusion.yaml`, `weights.safetensors`, and `model.json` that ties them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError
from fusec.foreign import Name, decoding, not_a, read_json

if TYPE_CHECKING:
    from fusec.ir.evaluate import Array
    from fusec.models.convert import Converted
    from fusec.models.weights import Weight

RECORD, FUSION, WEIGHTS = "model.json", "fusion.yaml", "weights.safetensors"
FORMAT = 1
Content = bytes | Iterable[bytes | memoryview]


@dataclass(frozen=True)
class ModelFolder:
    """What `model.json` says.

    weights: the names in the module by those of the fusion's inputs; inputs: those that the user
    gives, in order, None for one that the model does not read; outputs: in order, None for one that
    is no tensor; updates: the inputs that outputs are written into.
    """

    path: Path
    name: str
    weights: Mapping[str, str]
    inputs: Sequence[str | None]
    outputs: Sequence[str | None]
    updates: Mapping[str, str]

    @property
    def fusion(self) -> Path:
        """Return the path of the fusion file."""
        return self.path / FUSION

    def load_weights(self) -> dict[str, Array]:
        """Return the weights by the names of the fusion's inputs; those that are written anew."""
        from fusec.models.weights import mapped_weights

        if not self.weights:
            return {}
        found = mapped_weights(self.path / WEIGHTS, self.weights)
        written = {*self.updates.values()}
        return {n: a.copy() if n in written else a for n, a in found.items()}


def files_of(model: Converted, text: str, known: Mapping[str, Weight]) -> dict[str, Content]:
    """Return the files of a model's folder; known: its weights by the names of inputs."""
    from fusec.models.weights import safetensors_of

    keys = {name: entry.key for name, entry in model.inputs if name in known}
    kept = {entry.name: name for name, entry in model.inputs}
    record = {
        "format": FORMAT,
        "model": model.graph.name,
        "inputs": [kept.get(i.name) for i in model.graph.inputs if i.kind == "input"],
        "outputs": list(model.returned),
        "updates": model.aliases,
        "weights": keys,
        "files": {FUSION: sha256(text.encode()).hexdigest(), RECORD: "", WEIGHTS: ""},
    }
    files: dict[str, Content] = {FUSION: text.encode()}
    if known:
        files[WEIGHTS] = safetensors_of(known)
    files[RECORD] = (json.dumps(record, indent=1) + "\n").encode()
    return files


def is_model_folder(path: Name) -> bool:
    """Return whether a folder holds a model."""
    return os.path.isfile(os.path.join(path, RECORD))


def read_model_folder(path: Name) -> ModelFolder:
    """Return what a model's folder says of it; FusecError where it is damaged."""
    place = Path(path) / RECORD
    data = read_json(place, "the record of a model")
    with decoding(not_a(place, "the record of a model", help="import the model again")):
        if data["format"] != FORMAT:
            raise FusecError(f"`{place}` has format {data['format']!r}, expected {FORMAT}")
        return ModelFolder(
            Path(path), _text(data["model"]), dict(_pairs(data["weights"])),
            _names(data["inputs"]), _names(data["outputs"]), dict(_pairs(data["updates"])),
        )  # fmt: skip


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a name is not text")
    return value


def _names(values: Any) -> list[str | None]:
    if not isinstance(values, list):
        raise ValueError("names are not a list")
    return [None if v is None else _text(v) for v in values]  # pyright: ignore[reportUnknownVariableType]


def _pairs(values: Any) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        yield _text(name), _text(value)
