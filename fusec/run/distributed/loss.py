"""The loss of a rank, after which no other can continue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.dataclasses import asdict, dataclass
from fusec.diagnostics import EnvironmentProblem
from fusec.run.distributed import wire

GRACE = 2.0
"""Seconds that ranks have to end with their own error after one is lost."""


class RankFailure(EnvironmentProblem):
    """A rank has ended, is stopped, hangs or has failed, so that no other rank can continue."""


@dataclass(frozen=True)
class Loss:
    """The rank that was lost first, negative where it is unknown.

    failed: it has ended with an error of its own, which it prints.
    """

    rank: int
    message: str
    notes: tuple[str, ...] = ()
    failed: bool = False

    def error(self) -> RankFailure:
        """Return it as an error."""
        return RankFailure(self.message, notes=self.notes)

    def frame(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @classmethod
    def of_frame(cls, frame: Mapping[str, Any]) -> Loss:
        """Return the loss that plain data describes; wire.Refused if it is malformed."""
        wire.need(frame, rank=int, message=str, notes=list, failed=bool)
        return cls(
            frame["rank"], frame["message"], tuple(map(str, frame["notes"])), frame["failed"]
        )

    @classmethod
    def died(cls, rank: int) -> Loss:
        """Return the loss of a rank whose process is gone."""
        return cls(rank, f"rank {rank} died")


def name_ranks(ranks: list[int]) -> str:
    """Return `rank 1`, or `ranks 1, 2`."""
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks))}"
