"""The operations, one declaration each, in a table that imports them by name."""

from __future__ import annotations

from fusec.ops.find import find_op as find_op
from fusec.ops.refused import REFUSED as REFUSED
from fusec.ops.table import TABLE as TABLE
