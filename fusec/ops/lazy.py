"""The `np` of operations, whose bodies are untyped: see `fusec.ir.arrays`."""

from __future__ import annotations

from typing import Any

from fusec.ir import arrays

np: Any = arrays.np
