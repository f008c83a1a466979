"""The partition of a fusion: each rank's program, and how ranks hold and sum its values."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass, field
from fusec.ir.graph import Fusion
from fusec.ir.sharding import Sharding


@dataclass(frozen=True, eq=False)
class Partition:
    """The fusion that one rank runs.

    placed: how ranks hold each input and output, by name. sums: how ranks compute the results that
    they sum or multiply, by name. local: the name of a rank's own result, partial or whole, by the
    name of the value. values: the sharding of each tensor of the whole fusion. several: those
    computed for each reader, in more than one sharding or in none.
    """

    fusion: Fusion
    placed: Mapping[str, Sharding]
    sums: Mapping[str, RankSum] = field(default_factory=dict[str, "RankSum"])
    local: Mapping[str, str] = field(default_factory=dict[str, str])
    values: Mapping[str, Sharding] = field(default_factory=dict[str, Sharding])
    several: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RankSum:
    """How ranks compute a result that is a sum, or a product, over ranks.

    reduction: `sum` or `prod`. operands: the sharding of each operand, None for scalars. axes: of
    the mesh, over which partial results are combined sequentially. results: the local name of each
    combined result. bias: the index of the operand that is added to the last of them, if any.
    """

    reduction: str
    operands: tuple[Sharding | None, ...]
    axes: tuple[str, ...]
    results: tuple[str, ...]
    bias: int | None = None
