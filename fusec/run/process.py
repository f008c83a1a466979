"""The ranks that this process runs among, met once for as long as it lives."""

from __future__ import annotations

import atexit
from functools import cache

from fusec.run.links import Links
from fusec.run.ranks import from_environment, patience
from fusec.run.rendezvous import meet


@cache
def links() -> Links:
    """Return the connections to the other ranks; the first call waits until all are there."""
    made = meet(from_environment(), patience())
    atexit.register(made.close)
    return made


def barrier() -> None:
    """Wait until all ranks are there; RankFailure where one does not come."""
    if from_environment().started:
        links().gather(None, "barrier")
