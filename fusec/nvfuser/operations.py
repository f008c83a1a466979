"""`fd.ops` of nvFuser's definitions: arguments as nvFuser takes them, each call noted as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fusec.nvfuser.arguments import as_taken, without_gradient
from fusec.nvfuser.embedding import embedding_with_norm
from fusec.parse.dsl.datatype import DataType
from fusec.parse.dsl.handles import Tensor
from fusec.parse.dsl.operations import Operations

if TYPE_CHECKING:
    from fusec.nvfuser.definition import FusionDefinition


_PROMOTED = """
    acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 erf erfc erfinv erfcinv lgamma log
    log10 log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh neg truediv atan2 nextafter
    div mod ceilDiv add fmod mul pow remainder sub minimum maximum add_alpha sub_alpha lerp addcmul
"""
PROMOTED = frozenset(_PROMOTED.split())
"""Operations that compute in f32 what comes in fewer bits, and return it so (nvFuser's
`computeTypes`, by the configurations of `csrc/ops/arith.cpp`)."""


def _promoted(value: Any) -> Any:
    """Return a tensor of floats of 16 bits or fewer as f32, anything else as it is."""
    known = isinstance(value, Tensor) and value.definition.knows(value)
    if not (known and value.operand.type.dtype.is_half):
        return value
    return value.definition.ops.cast(value, DataType.Float, name=())


class RecordedOperations(Operations):
    """The operations of a definition, each call noted as text."""

    _definition: FusionDefinition

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = super().__getattr__(name)
        noted = self._definition.calls

        def recorded(*args: Any, **options: Any) -> Any:
            def run() -> Any:
                taken, named = as_taken(self._definition, method.__name__, args, options)
                if method.__name__ in PROMOTED:
                    taken = [_promoted(value) for value in taken]
                    named = {key: _promoted(value) for key, value in named.items()}
                if named.get("max_norm") is None:
                    return method(*taken, **named)
                return embedding_with_norm(self._definition, **without_gradient(named))

            return noted.take(lambda r: noted.operation(method.__name__, args, options, r), run)

        recorded.__name__, recorded.__doc__ = name, method.__doc__
        return recorded
