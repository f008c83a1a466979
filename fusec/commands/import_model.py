"""`fusec import`: convert a model exported by PyTorch to a folder with fusion file and weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fusec.commands.folder.artifacts import check_place, write_folder
from fusec.commands.report import count
from fusec.commands.terminal.diagnose import Report
from fusec.commands.terminal.progress import working
from fusec.escape import visible
from fusec.models.folder import files_of
from fusec.models.read import Imported, imported


def import_model(
    path: str, output: str | None, report: Report, external: Sequence[str] = ()
) -> int:
    """Write a folder for each graph of a file, and print its contents; folders are never partial.

    external: further operations that become external calls.
    """
    with working(f"reading {path}"):
        found = list(imported(path, external))
    several = len(found) > 1
    folders = [
        Path(name) if output is None else Path(output, name if several else "")
        for name in (i.model.graph.name for i in found)
    ]
    for folder in folders:
        check_place(folder)
    for folder, each in zip(folders, found, strict=True):
        write_folder(folder, files_of(each.model, each.steps, each.weights))
        _print(folder, each)
        report.facts.setdefault("folders", []).append(_facts(folder, each))
    return 0


def _print(folder: Path, each: Imported) -> None:
    model = each.model
    nodes = count(len(model.graph.nodes), "node")
    lines = count(len(model.lines) - len(each.calls), "op line")
    held = sum(len(w.data) for w in each.weights.values())
    weights = f", {count(len(each.weights), 'weight')} ({held} bytes)" if each.weights else ""
    print(visible(f"{folder}: {nodes}, {lines}{weights}"))
    for name, entry in model.inputs:
        if entry.kind == "input":
            print(f"  {name}: {entry.type}")
    for each_output in _outputs(each):
        into = each_output["alias"]
        print(f"  -> {each_output['name']}: {each_output['type']}{f' into {into}' if into else ''}")
    if each.calls:
        calls = Counter(call.target for call in each.calls)
        listed = ", ".join(f"{target} ({number})" for target, number in calls.items())
        parts = count(len(each.parts), "fusion")
        print(visible(f"  {count(len(each.calls), 'external call')} between {parts}: {listed}"))


def _facts(folder: Path, each: Imported) -> dict[str, Any]:
    """Return the JSON record of a written folder."""
    model = each.model
    operations = Counter(n.target for n in model.graph.nodes)
    return {
        "folder": str(folder), "fusion": model.graph.name,
        "nodes": len(model.graph.nodes), "op_lines": len(model.lines) - len(each.calls),
        "calls": [{"name": n, "count": k} for n, k in sorted(operations.items())],
        "inputs": [
            {"name": n, "type": str(e.type)} for n, e in model.inputs if e.kind == "input"
        ],
        "weights": [
            {"name": n, "key": e.key, "type": str(e.type)}
            for n, e in model.inputs if e.kind != "input"
        ],
        "outputs": _outputs(each), "external": [
            {"name": n, "count": k} for n, k in Counter(c.target for c in each.calls).items()
        ],
        "sizes": dict(model.graph.symbols),
    }  # fmt: skip


def _outputs(each: Imported) -> list[dict[str, Any]]:
    """Return the outputs of a model in order: name, type, and the input that it updates."""
    model = each.model
    types = {o.value.name: str(o.value.type) for p in each.parts for o in p.fusion.outputs}
    types |= {n: t for c in each.calls for n, t in zip(c.results, c.types, strict=True) if n}
    return [
        {"name": name, "type": types[name], "alias": model.aliases.get(name)}
        for name in model.outputs
    ]
