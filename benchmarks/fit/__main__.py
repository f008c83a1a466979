"""Fits coefficients of the cost model to recorded times, and compares them with the stored ones.

python -m benchmarks.fit [--only GLOB,...] [--records NAME,...] [--check | --sources]
                        [--sweeps N] [--out FILE]

Of each coefficient of `sm_90a.toml` that is fitted, with all others held: how many recorded times
depend on it, the stored value and the one with the least error, that error (the mean of
|log(predicted / recorded)|) with both, and the elasticity: the mean relative change of a prediction
over that of the coefficient. Plans are as they were timed. Nothing is timed, and no GPU is needed.
--check exits with 1 where, of FEWEST times and more, the error of the stored value exceeds the
least by more than MARGIN. --sources prints all numbers of the file with what they rest on instead.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.entry import end_with
from benchmarks.fit.coefficients import chosen, coefficients, with_value
from benchmarks.fit.descent import Fit, Fitting
from benchmarks.fit.measured import RECORDS, TARGET, Measurement, measurements
from fusec.target import find

MARGIN = 0.02
"""Of times of one kernel from run to run."""
FEWEST = 8
"""Recorded times by which a value can be called worse than another."""


def is_worse(found: Fit) -> bool:
    """Return whether recorded times are against the stored value."""
    return found.times >= FEWEST and found.excess > MARGIN


def fits(only: Sequence[str], recorded: Sequence[Measurement], sweeps: int = 1) -> Iterator[Fit]:
    """Yield the fit of each coefficient that is chosen.

    Of one sweep, all others have their stored values; of several, the values fitted so far.
    """
    fitting = Fitting(recorded, find(TARGET))
    for _ in range(sweeps):
        for coefficient in chosen(fitting.target, only):
            found = fitting.fit(coefficient)
            yield found
            if sweeps > 1 and found.excess > 0:
                changed = with_value(fitting.target, coefficient.name, found.fitted)
                fitting = Fitting(recorded, changed)


def line(found: Fit) -> str:
    """Return a fit as a line of the table."""
    name, value = found.coefficient.name, found.coefficient.value
    if not found.times:
        return f"{name:<46} {'0':>5} {value:>10.4g}   no recorded time depends on it"
    return (
        f"{name:<46} {found.times:>5} {value:>10.4g} {found.fitted:>10.4g} "
        f"{found.error:>8.4f} {found.fitted_error:>8.4f} {found.elasticity:>8.3f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the fits; the exit code is 1 where --check finds a stored value that is worse."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.fit", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    listed = {"type": lambda text: [t for t in text.split(",") if t], "default": []}
    parser.add_argument("--only", **listed, help="patterns of coefficients, such as cost.rows.*")
    parser.add_argument("--records", **listed, help=f"of {', '.join(RECORDS)}")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--check", action="store_true")
    either.add_argument("--sources", action="store_true")
    parser.add_argument("--sweeps", type=int, default=1, help="with the values fitted before held")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    if given.sources:
        for c in coefficients(find(TARGET)):
            print(f"{c.name:<46} {c.value:>10.4g}  {c.source.value}")
        return 0
    recorded = measurements(given.records or RECORDS)
    print(f"{'coefficient':<46} times     stored     fitted    error   fitted  elasticity")
    found: list[Fit] = []
    for each in fits(given.only, recorded, given.sweeps):
        found.append(each)
        print(line(each), flush=True)
    worse = [f.coefficient.name for f in found if is_worse(f)]
    if given.out is not None:
        text = json.dumps([asdict(f) for f in found], indent=1, default=lambda source: source.name)
        given.out.write_text(text + "\n", encoding="utf-8")
    if given.check:
        print(f"exceeding the least error by more than {MARGIN}: {', '.join(worse) or 'none'}")
    return int(given.check and bool(worse))


if __name__ == "__main__":
    end_with(main)
