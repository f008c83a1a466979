"""How a fusion is divided: what one rank runs of it, and how ranks hold and sum its values."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass, field
from fusec.ir.graph import Fusion
from fusec.ir.sharding import Sharding


@dataclass(frozen=True, eq=False)
class Partition:
    """The fusion that one rank runs.

    placed: how ranks hold each input and output, by name. sums: how ranks compute the results that
    they sum or multiply, by name. local: by the name of a value what a rank calls its own result,
    partial or whole. values: how each tensor of the whole fusion is divided. several: those
    computed for each reader, in more than one division or in none.
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

    reduction: `sum` or `prod`. operands: how each operand is divided, None for scalars. axes: of
    the mesh, over which partial results are combined one after the other. results: the local name
    of each combined result. bias: the operand that is added to the last of them, if any.
    """

    reduction: str
    operands: tuple[Sharding | None, ...]
    axes: tuple[str, ...]
    results: tuple[str, ...]
    bias: int | None = None
