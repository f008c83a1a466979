"""Of a coefficient the value that makes predictions nearest to recorded times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import mean

from scipy.optimize import minimize_scalar  # pyright: ignore[reportMissingTypeStubs]

from benchmarks.fit.coefficients import Coefficient, coefficients, with_value
from benchmarks.fit.measured import Measurement
from fusec.target import Target

PROBED = (0.8, 1.25)
"""Factors of a value, one of which changes the predictions that depend on it."""
WIDEST = 2.0
"""The largest factor between the stored and the fitted value."""
PRECISION = 0.01
LEAST = 1e-6
"""The relative change of a prediction that is none."""


@dataclass(frozen=True)
class Fit:
    """A coefficient held against the recorded times that depend on it.

    times: how many these are; error, fitted_error: mean |log(predicted / recorded)| of these, with
    the stored and the fitted value; elasticity: mean relative change of a prediction over that of
    the value.
    """

    coefficient: Coefficient
    times: int
    fitted: float
    error: float
    fitted_error: float
    elasticity: float

    @property
    def excess(self) -> float:
        """Return by how much the error of the stored value exceeds that of the fitted one."""
        return self.error - self.fitted_error


class Fitting:
    """Recorded times and a target, whose coefficients are fitted one by one."""

    def __init__(self, times: Sequence[Measurement], target: Target) -> None:
        """Predict all times once."""
        self.times, self.target = times, target
        self.values = {c.name: c.value for c in coefficients(target)}
        self.predicted = {t: t.predict(target) for t in times}
        self._groups: dict[str, list[Measurement]] = {}

    def dependent(self, name: str) -> list[Measurement]:
        """Return the times whose predictions depend on a coefficient."""
        return self._moved([name], self._of_group(name.rpartition(".")[0]))

    def _of_group(self, group: str) -> list[Measurement]:
        """Return the times whose predictions depend on a table of coefficients, all for none."""
        if group not in self._groups:
            same = [name for name in self.values if name.startswith(f"{group}.")]
            above = self._of_group(group.rpartition(".")[0]) if group else [*self.times]
            self._groups[group] = self._moved(same, above) if group else above
        return self._groups[group]

    def _moved(self, names: Sequence[str], times: Sequence[Measurement]) -> list[Measurement]:
        changed = [self._scaled(names, factor) for factor in PROBED]
        return [t for t in times if any(self._move(t, each) > LEAST for each in changed)]

    def _scaled(self, names: Sequence[str], factor: float) -> Target:
        found = self.target
        for name in names:
            found = with_value(found, name, self.values[name] * factor)
        return found

    def _move(self, measured: Measurement, changed: Target) -> float:
        return abs(log(measured.predict(changed) / self.predicted[measured]))

    def fit(self, coefficient: Coefficient) -> Fit:
        """Return a coefficient with its best value between WIDEST times less and more.

        The absolute error is minimised, not its square, since a few recorded times are far off.
        """
        name, value = coefficient.name, coefficient.value
        found = self.dependent(name)
        if not found:
            return Fit(coefficient, 0, value, 0.0, 0.0, 0.0)

        def loss(tried: float) -> float:
            return error(found, with_value(self.target, name, tried))

        stored = loss(value)
        best = _best_count(value, loss) if coefficient.is_count else _best(value, loss)
        least, fitted = min((stored, value), (loss(best), best))
        moved = mean(self._move(t, self._scaled([name], f)) for t in found for f in PROBED)
        return Fit(coefficient, len(found), fitted, stored, least, moved / log(PROBED[1]))


def error(times: Sequence[Measurement], target: Target) -> float:
    """Return the mean of |log(predicted / recorded)|."""
    return mean(abs(log(t.predict(target) / t.value)) for t in times)


def _best_count(value: float, loss: Callable[[float], float]) -> float:
    least, most = max(1, int(value / WIDEST)), int(value * WIDEST)
    return min(range(least, most + 1, max(1, (most - least) // 16)), key=loss)


def _best(value: float, loss: Callable[[float], float]) -> float:
    """Return the value with the least loss, searched along its logarithm."""
    found = minimize_scalar(
        lambda tried: loss(exp(tried)),
        bounds=(log(value / WIDEST), log(value * WIDEST)),
        method="bounded",
        options={"xatol": PRECISION},
    )
    return exp(found.x)
