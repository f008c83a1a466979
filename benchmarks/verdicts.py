"""What verdicts are worth: `python -m benchmarks.verdicts --out FILE [PART ...]`.

calibration: expected errors against the spread of f32 evaluations of random fusions.
right: results of random fusions in f32, by three orders of sums and from inputs of little entropy,
    none of which may differ.
wrong: examples at their default sizes and recorded graphs (--graphs DIR), of whose wrong outputs
    as many as can be must differ.

Everything runs on the host. FUSEC_TREE, the hash of `git rev-parse HEAD:fusec`,
goes into each part, so that a figure can be traced to the code that was run.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import Pool, TimeoutError
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.entry import end_with
from fusec import driver
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.reference.verdict import NOT_DECIDED
from fusec.run.inputs import choose_sizes
from tools.draw import draw_fusion
from tools.verdicts import ENTROPIES, ORDERS, Setting, calibrate, judge_right, judge_wrong, largest

EXAMPLES = Path(__file__).parent.parent / "examples"
PARTS = ("calibration", "right", "wrong")
EVALUATIONS = 32

Row = dict[str, Any]


def calibration_of(seed: int, number: int) -> list[Row]:
    """Return how the outputs of one random fusion are calibrated."""
    fusion = draw_fusion(seed, number)
    found = calibrate(fusion, choose_sizes(fusion), EVALUATIONS)
    return [{"number": number, **vars(c), "counts": c.counts} for c in found]


def right_of(seed: int, number: int) -> list[Row]:
    """Return the verdicts on right results of one random fusion, by each order of sums."""
    fusion = draw_fusion(seed, number)
    sizes = choose_sizes(fusion)
    rows = list[Row]()
    for place, order in enumerate(ORDERS):
        entropy = ENTROPIES[(number + place) % len(ENTROPIES)]
        verdict = judge_right(fusion, sizes, Setting(order, entropy, seed=place))
        rows += [
            {"number": number, "order": order, "inputs": entropy, "word": o.word, "text": o.text()}
            for o in verdict.outputs
        ]
    return rows


def wrong_of(path: str) -> list[Row]:
    """Return what became of the wrong outputs of an example or a recorded graph."""
    name, fusion = Path(path).stem, load(path)
    sizes = choose_sizes(fusion)
    order = list(ORDERS)[len(name) % len(ORDERS)]
    verdict = judge_right(fusion, sizes, Setting(order, seed=1))
    found = judge_wrong(fusion, sizes, Setting(order, seed=3))
    words = Counter(o.word for o in verdict.outputs)
    head = {"name": name, "order": order, "right": dict(words), "pairs": found.pairs}
    return [{**head, "missed": [list(m) for m in found.missed]}]


def load(path: str) -> Fusion:
    """Return the fusion of an example, or of a recorded graph with its own sizes."""
    if Path(path).suffix == ".yaml":
        return driver.load(path)
    from benchmarks.corpus_graph import read_graph
    from benchmarks.corpus_inputs import prepare

    return prepare(read_graph(Path(path)), "graph").fusion


def tried(function: Callable[..., list[Row]], arguments: tuple[Any, ...]) -> list[Row]:
    """Return the rows of a task; what it raises is a row, too."""
    try:
        return function(*arguments)
    except FusecError as error:
        return [{"task": list(map(str, arguments)), "refused": str(error)}]
    except Exception:
        return [{"task": list(map(str, arguments)), "error": traceback.format_exc()[-2000:]}]


def run_all(
    function: Callable[..., list[Row]], tasks: Sequence[tuple[Any, ...]], jobs: int, until: float
) -> Iterator[Row]:
    """Yield the rows of tasks as they end; those that run on after a time are given up."""
    left = len(tasks)
    with Pool(jobs) as pool:
        results = pool.imap_unordered(partial(tried, function), tasks)
        for left in range(len(tasks) - 1, -1, -1):
            try:
                yield from results.next(max(0.0, until - time.monotonic()))
            except TimeoutError:
                left += 1
                break
    if left:
        yield {"unfinished": left}


def unfinished(rows: Sequence[Row]) -> int:
    """Return how many tasks were given up."""
    return sum(r.get("unfinished", 0) for r in rows)


def errors_of(rows: Sequence[Row]) -> list[Any]:
    """Return what went wrong with tasks, but for what is not supported."""
    return [r for r in rows if "error" in r]


def calibration_record(rows: Sequence[Row]) -> Row:
    """Return the figures of the calibration."""
    known = [r for r in rows if "spread" in r]
    counted = [r for r in known if r["counts"]]
    ratios = np.array([r["expected"] / r["spread"] for r in counted])
    wide = np.array([r["expected"] / r["spread"] for r in counted if not r["halves"]])
    return {
        "fusions": len({r["number"] for r in known}),
        "evaluations": EVALUATIONS,
        "outputs": len(known),
        "with_spread": len(counted),
        "at_least_half": round(float(np.mean(ratios >= 0.5)), 4),
        "least": round(float(ratios.min()), 3),
        "without_halves": len(wide),
        "at_most_10": round(float(np.mean(wide <= 10)), 4),
        "at_most_3": round(float(np.mean(wide <= 3)), 4),
        "largest_error_over_expected": round(max(r["ratio"] for r in known), 2),
        "widest": [
            [r["number"], r["output"], round(r["expected"] / r["spread"], 1)]
            for r in sorted(counted, key=lambda r: -r["expected"] / r["spread"])[:10]
        ],
        "unfinished": unfinished(rows),
        "errors": errors_of(rows),
    }


def right_record(rows: Sequence[Row]) -> Row:
    """Return the figures of right results of random fusions."""
    known = [r for r in rows if "word" in r]
    words = Counter(r["word"] for r in known)
    return {
        "fusions": len({r["number"] for r in known}),
        "outputs": len(known),
        **{word.replace(" ", "_"): count for word, count in words.items()},
        "not_decided_share": round(words[NOT_DECIDED] / max(len(known), 1), 4),
        "differing": [r for r in known if r["word"] == "differs"],
        "unfinished": unfinished(rows),
        "errors": errors_of(rows),
    }


def wrong_record(rows: Sequence[Row]) -> Row:
    """Return the figures of wrong outputs."""
    known = [r for r in rows if "pairs" in r]
    right = sum((Counter(r["right"]) for r in known), Counter[str]())
    pairs = sum(r["pairs"] for r in known)
    missed = [[r["name"], *m] for r in known for m in r["missed"]]
    return {
        "fusions": len(known),
        "right_outputs": dict(right),
        "right_not_decided": [r["name"] for r in known if r["right"].get(NOT_DECIDED)],
        "pairs": pairs,
        "found_out": round(1 - len(missed) / max(pairs, 1), 4),
        "missed": missed,
        "refused": [r for r in rows if "refused" in r],
        "unfinished": unfinished(rows),
        "errors": errors_of(rows),
    }


RECORDS: Mapping[str, Callable[[Sequence[Row]], Row]] = {
    "calibration": calibration_record, "right": right_record, "wrong": wrong_record,
}  # fmt: skip


def graphs_of(folder: str | None, count: int, elements: int) -> list[str]:
    """Return the recorded graphs of no larger tensors than `elements`, every so manieth of them."""
    if folder is None:
        return []
    fit = list[str]()
    for path in sorted(Path(folder).glob("*.json")):
        try:
            fusion = load(str(path))
        except FusecError:
            continue
        if largest(fusion, choose_sizes(fusion)) <= elements:
            fit.append(str(path))
    step = max(1, len(fit) // count)
    return fit[::step][:count]


def elements_of(path: Path) -> int:
    """Return the elements of the largest tensor of an example."""
    fusion = driver.load(str(path))
    return largest(fusion, choose_sizes(fusion))


def main() -> None:
    """Run the parts and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--fusions", type=int, default=500, help="random fusions to calibrate by")
    parser.add_argument("--right", type=int, default=20_000, help="random fusions computed right")
    parser.add_argument("--graphs", metavar="DIR", help="recorded graphs")
    parser.add_argument("--count", type=int, default=100, help="recorded graphs at most")
    parser.add_argument("--elements", type=int, default=40_000_000, help="of a graph's tensors")
    parser.add_argument("--seconds", type=float, default=1e9, help="per part")
    given = parser.parse_args()
    tasks: dict[str, tuple[Callable[..., list[Row]], list[tuple[Any, ...]]]] = {
        "calibration": (partial(calibration_of, given.seed), [(k,) for k in range(given.fusions)]),
        "right": (partial(right_of, given.seed + 1), [(k,) for k in range(given.right)]),
    }
    if "wrong" in given.parts:
        graphs = (given.graphs, given.count, given.elements)
        examples = map(str, sorted(EXAMPLES.glob("*.yaml"), key=elements_of))
        paths = [*graphs_of(*graphs), *examples]
        tasks["wrong"] = (wrong_of, [(path,) for path in paths])
    path = Path(given.out)
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    record["seed"] = given.seed
    for part in given.parts:
        began = time.monotonic()
        function, chosen = tasks[part]
        rows = list(run_all(function, chosen, given.jobs, began + given.seconds))
        record[part] = RECORDS[part](rows)
        record[part]["seconds"] = round(time.monotonic() - began)
        record[part]["fusec_tree"] = os.environ.get("FUSEC_TREE", "")
        shown = {k: v for k, v in record[part].items() if not isinstance(v, list)}
        print(part, json.dumps(shown), flush=True)
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    end_with(main)
