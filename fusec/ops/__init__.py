"""The operations, one declaration each; importing this package fills the table."""

from __future__ import annotations

from types import MappingProxyType

from fusec.ir.op import OpTable

# The table has the order of these imports.
# isort: off
from fusec.ops import activations as activations
from fusec.ops import attention as attention
from fusec.ops import complexes as complexes
from fusec.ops import composites as composites
from fusec.ops import contractions as contractions
from fusec.ops import convert as convert
from fusec.ops import declare as declare
from fusec.ops import dims as dims
from fusec.ops import elementwise_losses as elementwise_losses
from fusec.ops import extremes as extremes
from fusec.ops import factories as factories
from fusec.ops import filled as filled
from fusec.ops import grouped as grouped
from fusec.ops import indexing as indexing
from fusec.ops import losses as losses
from fusec.ops import masks as masks
from fusec.ops import movements as movements
from fusec.ops import norms as norms
from fusec.ops import pointwise_binary as pointwise_binary
from fusec.ops import pointwise_bits as pointwise_bits
from fusec.ops import pointwise_classify as pointwise_classify
from fusec.ops import pointwise_compare as pointwise_compare
from fusec.ops import pointwise_exponential as pointwise_exponential
from fusec.ops import pointwise_special as pointwise_special
from fusec.ops import pointwise_ternary as pointwise_ternary
from fusec.ops import pointwise_trigonometric as pointwise_trigonometric
from fusec.ops import pointwise_unary as pointwise_unary
from fusec.ops import random as random
from fusec.ops import rearrange as rearrange
from fusec.ops import reductions as reductions
from fusec.ops import reshapes as reshapes
from fusec.ops import scans as scans
from fusec.ops import scatters as scatters
from fusec.ops import sorts as sorts
from fusec.ops import statistics as statistics
from fusec.ops import summaries as summaries
from fusec.ops import tensor_cores as tensor_cores
from fusec.ops import windows as windows

# isort: on
from fusec.ops.find import find_op as find_op
from fusec.ops.refused import REFUSED as REFUSED

TABLE: OpTable = MappingProxyType(declare.TABLE)
"""All operations by name."""
