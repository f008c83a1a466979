"""What the cost model's choices among recorded schedules lose to the fastest of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from statistics import mean

from benchmarks.fit.measured import read
from benchmarks.product_schedules import Priced, product_of
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.target import Target


@dataclass(frozen=True)
class _Product:
    """A GEMM with the schedules of it that were timed and have kernels today."""

    priced: Priced
    made: Mapping[str, MatmulParameters]
    times: Mapping[str, float]

    def loss(self, target: Target) -> float:
        """Return log(time of the cheapest by a target's costs / time of the fastest)."""
        return log(self.priced.priced_for(target).over_best(self.made, self.times))


class Choices:
    """The GEMMs of which several schedules were timed on an H200 (`product_schedules`)."""

    def __init__(self, target: Target) -> None:
        """Analyse each, and find its schedules."""
        self._products: list[_Product] = []
        for row in read("h200-schedules")["rows"]:
            priced = Priced(*product_of(row["name"]), target)
            times: dict[str, float] = dict(map(tuple, row["schedules"]))
            made = priced.of(times)
            if len(made) > 1:
                self._products.append(_Product(priced, made, times))

    def loss(self, target: Target) -> float:
        """Return by how much the chosen schedules are slower than the fastest, geometric mean."""
        return exp(mean(p.loss(target) for p in self._products)) - 1
