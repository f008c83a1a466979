"""How long verifying the corpus' slowest graphs takes by NumPy and by CuPy, and whether they agree.

python -m benchmarks.verification DIR [--count N] [--only NAME] [--all] [--numpy] [--out FILE]

Graphs are those that took longest in benchmarks/results/corpus.json. Outputs are those of kernels
where there is a GPU; else the reference's, which shows NumPy's times alone. CuPy evaluates twice:
the first time it builds its kernels. `--all` compares every element, and samples no slices;
`--numpy` leaves CuPy out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from benchmarks.corpus_graph import read_graph
from benchmarks.corpus_inputs import draw_inputs, prepare, reduce_examples
from benchmarks.entry import end_with
from fusec import driver
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.ir import arrays
from fusec.ir.graph import Fusion
from fusec.options import REFERENCES, CompileOptions
from fusec.processors import usable_processors
from fusec.reference.gpu import asked
from fusec.reference.stream import outputs_of
from fusec.reference.verdict import Verdict, compare
from fusec.run.device import device_available

RESULTS = Path(__file__).parent / "results" / "corpus.json"
ALLOWED = 10.0
"""Seconds that a verification may take."""


@dataclass
class Row:
    """One graph: seconds by evaluator, those of CuPy's second time, and both verdicts.

    agree: whether verdicts have the same words of all outputs, and whether errors are alike; on the
    host: how often what was computed there in one evaluation by CuPy. faulty: whether something
    failed that is no error of the graph's.
    """

    name: str
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    words: dict[str, str] = field(default_factory=dict[str, str])
    checked: dict[str, str] = field(default_factory=dict[str, str])
    agree: bool | None = None
    on_the_host: dict[str, int] = field(default_factory=dict[str, int])
    message: str = ""
    faulty: bool = False

    def line(self) -> str:
        """Return the row as text."""
        times = ", ".join(f"{n} {s:.2f} s" for n, s in self.seconds.items())
        said = {True: "agree", False: "DISAGREE", None: "not compared"}[self.agree]
        late = " (too slow)" if min(self.seconds.values(), default=0.0) > ALLOWED else ""
        words = " / ".join(dict.fromkeys(self.words.values()))
        return f"{self.name}: {times}{late}; {words}; {said}{self.message and '; ' + self.message}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each graph, and write them all; 1 where verdicts disagree or fusec fails."""
    parser = argparse.ArgumentParser(prog="benchmarks.verification", description=__doc__)
    parser.add_argument("graphs", metavar="DIR", type=Path)
    parser.add_argument("--count", type=int, default=14)
    parser.add_argument("--only", metavar="NAME", default="")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--numpy", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", metavar="FILE", type=Path)
    given = parser.parse_args(arguments)
    device = _device()
    evaluators = REFERENCES[:1] if given.numpy else (*REFERENCES, f"{REFERENCES[-1]} again")
    rows = list[Row]()
    for name in slowest(given.graphs, given.only)[: given.count]:
        row = Row(name)
        try:
            path = given.graphs / f"{name}.json"
            measure(row, path, device, given.seed, given.all, evaluators)
        except FusecError as error:
            row.message = error.diagnostic.message.splitlines()[0]
        except Exception as error:
            row.faulty, row.message = True, f"{type(error).__name__}: {error}"
        rows.append(row)
        print(row.line(), flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(_record(rows, given.all), indent=1) + "\n", "utf-8")
    return int(any(row.faulty or row.agree is False for row in rows))


def _record(rows: Sequence[Row], everything: bool) -> dict[str, Any]:
    where = {"processors": usable_processors(), "fusec_tree": os.environ.get("FUSEC_TREE", "")}
    return {**where, "all": everything, "rows": [asdict(row) for row in rows]}


def slowest(graphs: Path, only: str) -> list[str]:
    """Return the names of the graphs of a folder, those first that took longest to verify."""
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))["graphs"]
    took = {row["name"]: row["seconds"].get("verify", 0.0) for row in recorded}
    names = [p.stem for p in sorted(graphs.glob("*.json")) if only in p.stem]
    return sorted(names, key=lambda n: -took.get(n, 0.0))


def _device() -> Any:
    if device_available() is not None:
        return None
    from fusec.run.device import Device

    return Device()


def measure(
    row: Row, path: Path, device: Any, seed: int, everything: bool, evaluators: Sequence[str]
) -> None:
    """Verify one graph by each evaluator, in order."""
    prepared = reduce_examples(prepare(read_graph(path), "graph"))
    fusion, inputs = prepared.fusion, draw_inputs(prepared, seed)
    program = driver.Compilation(fusion, CompileOptions(targets=("sm_90a",)))
    outputs = _outputs(fusion, program, inputs, device)
    model = driver.model_of(program.host, fusion.hints)
    limit = inf if everything else None
    found: dict[str, Verdict] = {}
    for name in evaluators:
        arrays.on_the_host.clear()
        began = time.perf_counter()
        try:
            with asked(name.split()[0]):
                verdict = compare(fusion, fusion.hints, inputs, outputs, model=model, limit=limit)
        except EnvironmentProblem as error:
            print(f"{name}: {error.diagnostic.message}", file=sys.stderr)
            return
        row.seconds[name] = round(time.perf_counter() - began, 3)
        found[name] = verdict
        row.words[name], row.checked[name] = verdict.word, verdict.coverage.text()
        row.on_the_host = dict(arrays.on_the_host)
    if all(name in found for name in REFERENCES):
        row.agree = agree(*(found[name] for name in REFERENCES))


def agree(a: Verdict, b: Verdict) -> bool:
    """Return whether two verdicts have the same words, and limits within a tenth."""
    pairs = list(zip(a.outputs, b.outputs, strict=True))
    # Blocks that are sampled differ with their sizes.
    return all(x.word == y.word and abs(x.power - y.power) <= 0.1 * x.power for x, y in pairs)


def _outputs(
    fusion: Fusion, program: driver.Compilation, inputs: Mapping[str, Any], device: Any
) -> Mapping[str, Any]:
    if device is None:
        return outputs_of(fusion, inputs, fusion.hints)
    from fusec.run.execute import execute

    package = driver.build(program)
    cubins = package.cubins("sm_90a")
    return execute(device, program.host, cubins, inputs, fusion.hints)


if __name__ == "__main__":
    end_with(main)
