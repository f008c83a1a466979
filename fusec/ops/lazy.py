"""NumPy, imported when a reference first runs: the op table alone must load fast."""

from __future__ import annotations

from typing import Any


class _LazyNumPy:
    def __getattr__(self, name: str) -> Any:
        import numpy

        return getattr(numpy, name)


np: Any = _LazyNumPy()
