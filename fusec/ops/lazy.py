"""NumPy, imported when a reference first runs: the op table alone must load fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _LazyNumPy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            return getattr(numpy, name)

    np = _LazyNumPy()

__all__ = ["np"]
