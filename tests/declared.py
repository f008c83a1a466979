"""Operations that a test declares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fusec.ops.table import TABLE


@contextmanager
def temporary_ops() -> Iterator[None]:
    """Undo, at the end, every declaration made inside."""
    saved = {*TABLE}
    try:
        yield
    finally:
        for name in {*TABLE} - saved:
            del TABLE.declared[name]
