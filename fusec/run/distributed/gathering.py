"""Gathers the arrays of all ranks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fusec.ir.dtype import find, of_numpy
from fusec.ir.evaluate import Array
from fusec.run.distributed.links import Links


def gather_arrays(
    links: Links, arrays: Mapping[str, Array], timeout: float | None = None
) -> list[dict[str, Array]] | None:
    """Return the arrays of every rank, on rank 0; None elsewhere.

    All ranks call it, in the same order, with arrays of the same names. timeout: seconds to wait
    for the slowest rank.
    """
    number = links.number()
    if links.rank:
        for name, array in arrays.items():
            head = {"dtype": of_numpy(array.dtype).name, "shape": list(array.shape)}
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            links.send(0, f"{number} {name}", f"gather of `{name}`", head, data)
        return None
    return [
        {name: array if rank == 0 else _receive(links, rank, f"{number} {name}", name, timeout)
         for name, array in arrays.items()}
        for rank in range(links.size)
    ]  # fmt: skip


def _receive(links: Links, rank: int, key: str, name: str, timeout: float | None) -> Array:
    message = links.receive(rank, key, f"gather of `{name}`", timeout)
    with message.reading():
        dtype = find(message.head["dtype"]).numpy
        return np.frombuffer(message.data, dtype).reshape(message.head["shape"])
