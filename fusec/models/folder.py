"""A model folder: fusion files, `weights.safetensors`, and `model.json` that links them."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, Unsupported
from fusec.foreign import Name, decoding, not_a, read_json
from fusec.models.calls import Call, as_data, from_data
from fusec.models.graph import Constant, WeightRecord

if TYPE_CHECKING:
    from fusec.ir.evaluate import Array
    from fusec.models.convert import Converted
    from fusec.models.parts import Part
    from fusec.models.weights import Weight

RECORD, FUSION, WEIGHTS = "model.json", "fusion.yaml", "weights.safetensors"
FORMAT = 2
Content = bytes | Iterable[bytes | memoryview]


@dataclass(frozen=True)
class ModelFolder:
    """The contents of `model.json`.

    weights: by the names of inputs. inputs: those that the user passes, in order: a name, a
    Constant, or None for one that the model does not read; types: of those with a name. outputs: in
    order, names and constants; updates: the inputs that outputs are written into. steps: the fusion
    files and external calls in order. modules: by the names of the values that they compute.
    """

    path: Path
    name: str
    weights: Mapping[str, WeightRecord]
    inputs: Sequence[str | Constant | None]
    types: Mapping[str, str]
    outputs: Sequence[str | Constant]
    updates: Mapping[str, str]
    steps: Sequence[str | Call]
    modules: Mapping[str, str]

    @property
    def fusions(self) -> list[Path]:
        """Return the paths of the fusion files; only one without external calls."""
        return [self.path / step for step in self.steps if isinstance(step, str)]

    @property
    def calls(self) -> list[Call]:
        """Return the external calls."""
        return [step for step in self.steps if not isinstance(step, str)]

    def load_weights(self) -> dict[str, Array]:
        """Return the weights by the names of inputs; those that are written to are copied."""
        from fusec.models.weights import mapped_weights

        if not self.weights:
            return {}
        found = mapped_weights(self.path / WEIGHTS, self.weights)
        written = {*self.updates.values()}
        return {n: a.copy() if n in written else a for n, a in found.items()}


def files_of(
    model: Converted, steps: Sequence[Part | Call], known: Mapping[str, Weight]
) -> dict[str, Content]:
    """Return the files of a model's folder; known: its weights by the names of inputs."""
    from fusec.models.weights import safetensors_of

    texts = {step.file: step.text.encode() for step in steps if not isinstance(step, Call)}
    record = {
        "format": FORMAT,
        "model": model.graph.name,
        "inputs": list(_inputs(model)),
        "outputs": [o if isinstance(o, str) else {"constant": o.value} for o in model.returned],
        "updates": model.aliases,
        "weights": {
            name: {"key": entry.key, "type": str(entry.type), "crc32": crc32(known[name].data)}
            for name, entry in model.inputs
            if name in known
        },
        "steps": [as_data(s) if isinstance(s, Call) else {"fusion": s.file} for s in steps],
        "modules": dict(_modules(model)),
        "files": {n: sha256(t).hexdigest() for n, t in texts.items()} | {RECORD: "", WEIGHTS: ""},
    }
    files: dict[str, Content] = {**texts}
    if known:
        files[WEIGHTS] = safetensors_of(known)
    files[RECORD] = (json.dumps(record, indent=1) + "\n").encode()
    return files


def _modules(model: Converted) -> Iterator[tuple[str, list[str]]]:
    """Yield the path of each module, and the values that it computes."""
    found: dict[str, list[str]] = {}
    for line in model.lines:
        found.setdefault(line.node.module, []).extend(n for n in line.names if n != "_")
    yield from found.items()


def _inputs(model: Converted) -> Iterator[Any]:
    """Yield the arguments of the user in order."""
    graph = model.graph
    names = {entry.name: name for name, entry in model.inputs}
    tensors = iter([i for i in graph.inputs if i.kind == "input"])
    constants = {c.place: c for c in graph.constants}
    for place in range(len(constants) + sum(i.kind == "input" for i in graph.inputs)):
        if place in constants:
            yield {"argument": constants[place].name, "constant": constants[place].value}
            continue
        entry = next(tensors)
        name = names.get(entry.name)
        yield None if name is None else {"input": name, "type": str(entry.type)}


def is_model_folder(path: Name) -> bool:
    """Return whether a folder contains a model."""
    return os.path.isfile(os.path.join(path, RECORD))


def read_model_folder(path: Name) -> ModelFolder:
    """Return the record of a model's folder; FusecError where it is damaged."""
    place = Path(path) / RECORD
    data = read_json(place, "the record of a model")
    with decoding(not_a(place, "the record of a model", help="import the model again")):
        if data["format"] != FORMAT:
            raise FusecError(
                f"`{place}` has format {data['format']!r}, expected {FORMAT}",
                help="import the model again",
            )
        given = [entry for entry in data["inputs"] if entry is not None and "input" in entry]
        return ModelFolder(
            path=Path(path),
            name=_text(data["model"]),
            weights={
                _text(n): WeightRecord(_text(w["key"]), _text(w["type"]), int(w["crc32"]))
                for n, w in data["weights"].items()
            },
            inputs=list(_arguments(data["inputs"])),
            types={_text(e["input"]): _text(e["type"]) for e in given},
            outputs=list(_results(data["outputs"])),
            updates=dict(_pairs(data["updates"])),
            steps=list(_steps(data["steps"])),
            modules={_text(n): path for path, names in data["modules"].items() for n in names},
        )


def _arguments(entries: Any) -> Iterator[str | Constant | None]:
    for place, entry in enumerate(entries):
        if entry is None:
            yield None
        elif "input" in entry:
            yield _text(entry["input"])
        else:
            yield Constant(_text(entry["argument"]), place, entry["constant"])


def _steps(entries: Any) -> Iterator[str | Call]:
    for entry in entries:
        if "call" in entry:
            yield from_data(entry)
            continue
        name = _text(entry["fusion"])
        if not re.fullmatch(r"\w+\.yaml", name):
            raise ValueError("a fusion file is not in the folder")
        yield name


def check_calls(folder: ModelFolder) -> None:
    """Raise Unsupported for a model with external calls, by name, with alternatives."""
    if not folder.calls:
        return
    first, counts = folder.calls[0], Counter(call.target for call in folder.calls)
    place = f" of module `{first.module}`" if first.module else ""
    place += f", source line {first.source}" if first.source else ""
    functions = f"calls={{{first.target!r}: f, ...}}"
    raise Unsupported(
        f"`{folder.path}` has external calls, which are not compiled: "
        + ", ".join(f"{target} ({count})" for target, count in counts.items()),
        notes=(f"the first is `{first.name}`{place}",),
        help=f"`fusec.load({str(folder.path)!r}, {functions})` in Python calls your functions "
        f"there; `fusec run {folder.fusions[0]}` runs a fusion between them",
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a name is not text")
    return value


def _results(entries: Any) -> Iterator[str | Constant]:
    for place, entry in enumerate(entries):
        is_name = isinstance(entry, str)
        yield entry if is_name else Constant(f"output_{place}", place, entry["constant"])


def _pairs(values: Any) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        yield _text(name), _text(value)
