"""Chooses how many variants of a test run by default, from the processor time that each takes.

`FUSEC_TEST_TIMES=FILE pytest -m 'not gpu'`, then `python tests/variants.py FILE > NEW`, which takes
the place of `variants.json`.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from paths import TESTS

SECONDS = 0.2
"""Of processor time that the variants of one test take together, where more than one runs."""
WHOLE = {"test_golden_files", "test_comes_to_its_text", "test_the_example_of_an_operation_runs"}
"""Tests of which every variant runs: each is of a file or an operation of its own."""


def chosen(
    times: Iterable[tuple[str, float]], known: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Return by file and test how many variants run, of tests whose variants take longer.

    known: what was chosen before, so that of these tests only some variants have times; none of
    those that are to run nightly alone, where a quicker test of the file does for every run.
    """
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for test, spent in times:
        path, _, name = test.partition("::")
        file, (function, _, variant) = path.rpartition("/")[2], name.partition("[")
        if variant and function not in WHOLE and "test_gpu_" not in file:
            seconds[file, function].append(spent)
    found: dict[str, dict[str, int]] = {file: dict(tests) for file, tests in known.items()}
    for (file, function), spent in sorted(seconds.items()):
        count = max(1, int(SECONDS * len(spent) / (sum(spent) or 1)))
        if count < len(spent) or function in known.get(file, {}):
            found.setdefault(file, {})[function] = count
    return {file: dict(sorted(found[file].items())) for file in sorted(found)}


if __name__ == "__main__":
    rows = [
        json.loads(line) for path in sys.argv[1:] for line in Path(path).read_text().splitlines()
    ]
    known = json.loads((TESTS / "variants.json").read_text())
    print(json.dumps(chosen(((row[0], row[1]) for row in rows), known), indent=1))
