"""A rank's versions of a value of the whole fusion."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from fusec.ir.dim import Dim
from fusec.ir.graph import Value
from fusec.ir.sharding import Parts, Sharding
from fusec.shard.reshard import Held, common


class Tensor:
    """A value of the whole fusion: its sharding, and a rank's versions of it so far."""

    def __init__(self, value: Value, sharding: Sharding) -> None:
        """Start without versions."""
        self.value, self.sharding = value, sharding
        self.held: dict[tuple[Parts, ...], Held] = {}

    def keep(self, held: Held) -> None:
        """Record a version; the first of each sharding is kept."""
        self.held.setdefault(held.sharding.dims, held)

    def nearest(self, wanted: Sharding) -> Held:
        """Return the version whose sharding differs from the wanted one in the fewest factors."""

        def distance(held: Held) -> tuple[int, int]:
            pairs = list(zip(held.sharding.dims, wanted.dims, strict=True))
            gone = sum(len(own) - common(own, aim) for own, aim in pairs)
            return gone, -sum(common(own, aim) for own, aim in pairs)

        return min(self.held.values(), key=distance)

    def along(self, extent: Dim) -> Iterator[tuple[Value, int]]:
        """Yield the rank's first version with each dim that has this extent in the whole."""
        for held in islice(self.held.values(), 1):
            yield from ((held.value, k) for k, e in enumerate(self.value.shape) if e == extent)
