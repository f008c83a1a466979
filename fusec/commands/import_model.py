"""`fusec import`: a model exported by PyTorch becomes a folder with a fusion file and weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from fusec.commands.artifacts import check_place, write_folder
from fusec.commands.diagnose import Report
from fusec.commands.progress import working
from fusec.commands.report import count
from fusec.escape import visible
from fusec.models.folder import files_of
from fusec.models.read import Imported, imported


def import_model(path: str, output: str | None, report: Report) -> int:
    """Write a folder for each graph of a file, and print what is in it; nothing is half written."""
    with working(f"reading {path}"):
        found = list(imported(path))
    several = len(found) > 1
    folders = [
        Path(i.fusion.name) if output is None else Path(output, i.fusion.name if several else "")
        for i in found
    ]
    for folder in folders:
        check_place(folder)
    for folder, each in zip(folders, found, strict=True):
        write_folder(folder, files_of(each.model, each.text, each.weights))
        _print(folder, each)
        report.facts.setdefault("folders", []).append(_facts(folder, each))
    return 0


def _print(folder: Path, each: Imported) -> None:
    model, fusion = each.model, each.fusion
    nodes = count(len(model.graph.nodes), "node")
    lines = count(len(model.lines), "op line")
    held = sum(len(w.data) for w in each.weights.values())
    weights = f", {count(len(each.weights), 'weight')} ({held} bytes)" if each.weights else ""
    print(visible(f"{folder}: {nodes}, {lines}{weights}"))
    for name, entry in model.inputs:
        if entry.kind == "input":
            print(f"  {name}: {entry.type}")
    types = {o.value.name: o.value.type for o in fusion.outputs}
    for name in model.outputs:
        into = model.aliases.get(name)
        print(f"  -> {name}: {types[name]}{f' into {into}' if into else ''}")


def _facts(folder: Path, each: Imported) -> dict[str, Any]:
    """Return for tools what was written."""
    model, fusion = each.model, each.fusion
    operations = Counter(n.target for n in model.graph.nodes)
    return {
        "folder": str(folder), "fusion": fusion.name,
        "nodes": len(model.graph.nodes), "op_lines": len(model.lines),
        "calls": [{"name": n, "count": k} for n, k in sorted(operations.items())],
        "inputs": [
            {"name": n, "type": str(e.type)} for n, e in model.inputs if e.kind == "input"
        ],
        "weights": [
            {"name": n, "key": e.key, "type": str(e.type)}
            for n, e in model.inputs if e.kind != "input"
        ],
        "outputs": [
            {"name": v.name, "type": str(v.type), "alias": model.aliases.get(v.name)}
            for v in (o.value for o in fusion.outputs)
        ],
        "sizes": dict(fusion.hints),
    }  # fmt: skip
