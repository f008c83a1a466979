"""Regions: elements of a value as boxes, or positions in a box that an index picks."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from math import prod

from fusec.dataclasses import dataclass
from fusec.index.boxes import Box, union, volume
from fusec.properties import cached_property

MOST_REGIONS = 64
"""Maximum number of distinct regions of a value."""


class By(Enum):
    """What determines the needed elements of a box."""

    INDEX = "a data-dependent index: accesses are not contiguous"
    MAP = "an index map that is not affine"
    COUNT = "nothing but their number"


@dataclass(frozen=True)
class Region:
    """Elements of a value: those of a box, or some of them.

    picked: dims along which an index, or a non-affine index map, determines the elements of the
    box. picks: number of positions along those dims together: indices count as distinct. sure:
    False if fewer elements may suffice. by: what picks the positions.
    """

    box: Box
    picked: frozenset[int] = frozenset()
    picks: int = 1
    sure: bool = True
    by: By = By.MAP

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.box, self.picked, self.picks, self.sure))

    @cached_property
    def count(self) -> int:
        """Return the number of elements, if all indices are distinct."""
        return volume(self.rest) * self.places if self.picked else volume(self.box)

    @property
    def places(self) -> int:
        """Return the number of positions along the picked dims; 1 without any."""
        return min(self.picks, volume(self.along)) if self.picked else 1

    @property
    def rest(self) -> Box:
        """Return the ranges along the dims that are not picked."""
        return tuple(r for k, r in enumerate(self.box) if k not in self.picked)

    @property
    def along(self) -> Box:
        """Return the ranges along the dims that are picked."""
        return tuple(r for k, r in enumerate(self.box) if k in self.picked)


@dataclass(frozen=True)
class Demanded:
    """The needed elements of a value. shape: its extents at hint sizes.

    Most values of a segment have equal needs: `demanded` returns one object of each kind.
    """

    regions: frozenset[Region]
    shape: tuple[int, ...]

    @cached_property
    def least(self) -> int:
        """Return how many elements are certainly needed, if all indices are distinct."""
        sure = [r for r in self.regions if r.sure]
        boxes = union(r.box for r in sure if not r.picked)[0]
        return max([boxes, *(r.count for r in sure if r.picked)])

    @cached_property
    def most(self) -> int:
        """Return how many elements a kernel reads, or computes, each once."""
        boxes = union(r.box for r in self.regions if not r.picked)[1]
        picked = sum(r.count for r in self.regions if r.picked)
        return min(prod(self.shape), boxes + picked)


@lru_cache(1 << 12)
def demanded(regions: frozenset[Region], shape: tuple[int, ...]) -> Demanded:
    """Return the needed elements of a value."""
    return Demanded(regions, shape)


def elementwise(region: Region, shape: tuple[int, ...]) -> Region:
    """Return the region of an operand that is broadcast along dims of extent 1."""
    if not shape:
        return Region((), sure=region.sure)
    if 1 not in shape and not region.picked:
        return region
    box = tuple((0, 1, 1) if e == 1 else r for r, e in zip(region.box, shape, strict=True))
    picked = frozenset(k for k in region.picked if shape[k] != 1)
    sure = region.sure and (picked == region.picked or not picked)
    return Region(box, picked, region.places if picked else 1, sure, region.by)


def merged(regions: set[Region]) -> frozenset[Region]:
    """Return the regions; if too many, a box around all, and the largest certain one."""
    if len(regions) <= MOST_REGIONS:
        return frozenset(regions)
    ranks = range(len(next(iter(regions)).box))
    around = tuple(
        (min(r.box[k][0] for r in regions), max(r.box[k][1] for r in regions), 1) for k in ranks
    )
    sure = [r for r in regions if r.sure]
    return frozenset({Region(around, sure=False), *sorted(sure, key=lambda r: r.count)[-1:]})
