"""fusec's implementation of nvFuser's FusionDefinition."""

from fusec.parse.dsl.datatype import DataType
from fusec.parse.dsl.definition import FusionDefinition
from fusec.parse.dsl.handles import Scalar, Tensor, Vector
from fusec.parse.dsl.session import set_executor

__all__ = ["DataType", "FusionDefinition", "Scalar", "Tensor", "Vector", "set_executor"]
