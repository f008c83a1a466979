"""The operations, one declaration each; importing this package fills the table."""

from __future__ import annotations

from types import MappingProxyType

from fusec.ir.op import OpTable
from fusec.ops import convert as convert
from fusec.ops import declare as declare
from fusec.ops import movements as movements
from fusec.ops import pointwise_binary as pointwise_binary
from fusec.ops import pointwise_unary as pointwise_unary
from fusec.ops import reductions as reductions
from fusec.ops import reshapes as reshapes
from fusec.ops.find import find as find

TABLE: OpTable = MappingProxyType(declare.TABLE)
"""All operations by name."""
