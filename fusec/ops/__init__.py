"""The operations, one declaration each; importing this package fills the table."""

from __future__ import annotations

from types import MappingProxyType

from fusec.ir.op import OpTable

# The table has the order of these imports.
# isort: off
from fusec.ops.composite import activations as activations
from fusec.ops.composite import attention as attention
from fusec.ops import complexes as complexes
from fusec.ops.composite import composites as composites
from fusec.ops.matmul import contractions as contractions
from fusec.ops import convert as convert
from fusec.ops import declare as declare
from fusec.ops.movement import dims as dims
from fusec.ops.composite import elementwise_losses as elementwise_losses
from fusec.ops.reduction import extremes as extremes
from fusec.ops import factories as factories
from fusec.ops.composite import filled as filled
from fusec.ops.matmul import grouped as grouped
from fusec.ops.movement import indexing as indexing
from fusec.ops.composite import losses as losses
from fusec.ops.composite import masks as masks
from fusec.ops.movement import movements as movements
from fusec.ops.composite import norms as norms
from fusec.ops.pointwise import binary as binary
from fusec.ops.pointwise import bits as bits
from fusec.ops.pointwise import classify as classify
from fusec.ops.pointwise import compare as compare
from fusec.ops.pointwise import exponential as exponential
from fusec.ops.pointwise import special as special
from fusec.ops.pointwise import ternary as ternary
from fusec.ops.pointwise import trigonometric as trigonometric
from fusec.ops.pointwise import unary as unary
from fusec.ops import random as random
from fusec.ops.movement import rearrange as rearrange
from fusec.ops.reduction import reductions as reductions
from fusec.ops.movement import reshapes as reshapes
from fusec.ops.reduction import scans as scans
from fusec.ops.movement import scatters as scatters
from fusec.ops.reduction import sorts as sorts
from fusec.ops.reduction import statistics as statistics
from fusec.ops.composite import summaries as summaries
from fusec.ops.matmul import tensor_cores as tensor_cores
from fusec.ops.movement import windows as windows

# isort: on
from fusec.ops.find import find_op as find_op
from fusec.ops.refused import REFUSED as REFUSED

TABLE: OpTable = MappingProxyType(declare.TABLE)
"""All operations by name."""
