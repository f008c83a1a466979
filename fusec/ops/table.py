"""The table of operations: a module that declares some is imported for the first of their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from fusec.diagnostics import InternalError
from fusec.ir.op import OpDef

_DECLARED = """
composite.activations: square softplus leaky_relu elu celu selu mish softsign tanhshrink logsigmoid
    relu6 hardtanh hardsigmoid hardswish hardshrink softshrink glu logaddexp logit xlogy copysign
    hypot fmin fmax floor_divide masked_fill logical_xor nan_to_num addcdiv isclose deg2rad rad2deg
random: uniform normal rand_like randn_like dropout
composite.attention: sdpfa_fwd scaled_dot_product_attention sdpfa_bwd
complexes: real imag complex
composite.composites: mean softmax prelu log_softmax layer_norm rms_norm gelu
matmul.contractions: matmul linear
convert: cast
movement.dims: unsqueeze transpose movedim flatten unflatten stack narrow split chunk unbind roll
    repeat_interleave
movement.indexing: index_select select gather take_along_axis embedding_fwd
composite.losses: cross_entropy nll_loss
composite.elementwise_losses: mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
    binary_cross_entropy_with_logits
reduction.extremes: argmax argmin
factories: full iota size shape
composite.filled: zeros ones full_like zeros_like ones_like arange eye one_hot
matmul.scaled: scaled_mm
matmul.grouped: grouped_mm
composite.masks: triu tril
movement.movements: broadcast broadcast_in_dim expand squeeze
composite.norms: batch_norm instance_norm group_norm
pointwise.binary: add sub mul div truediv fmod mod remainder ceilDiv pow atan2 nextafter minimum
    maximum gcd
pointwise.bits: bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift
    logical_right_shift
pointwise.classify: isfinite isinf isnan isneginf isposinf isreal signbit
pointwise.compare: eq ne lt le gt ge logical_and logical_or
pointwise.exponential: exp exp_approx exp2 exp2_approx expm1 log log10 log1p log2 sqrt rsqrt sigmoid
    sigmoid_approx silu silu_approx
pointwise.special: erf gelu_approx erfc erfinv erfcinv lgamma
pointwise.ternary: where lerp clamp threshold addcmul
pointwise.trigonometric: acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh tanh_approx
pointwise.unary: abs neg sign reciprocal relu ceil floor round trunc frac logical_not bitwise_not
movement.rearrange: flip repeat stride_order
reduction.reductions: sum prod max min any all
movement.reshapes: reshape permute set segment_set
reduction.scans: cumsum cumprod cummax cummin
movement.scatters: scatter scatter_add index_add index_put_accumulate
reduction.sorts: argsort sort topk
reduction.statistics: var var_mean welford
composite.summaries: logsumexp std norm normalize cosine_similarity softmin count_nonzero nansum
matmul.tensor_cores: tf32
movement.windows: slice pad cat update_slice
"""
"""The operations of the package by the module of `fusec.ops` that declares them, in the order of
the table; a line that begins with a blank goes on."""


def _modules() -> dict[str, str]:
    """Return the module of each operation of the package."""
    lines = _DECLARED.replace("\n    ", " ").strip().splitlines()
    listed = (line.partition(": ") for line in lines)
    return {name: module for module, _, names in listed for name in names.split()}


_MODULE_OF = _modules()


class OpTable(Mapping[str, OpDef]):
    """All operations by name: those of the package, then others in the order of declaration.

    declared: those whose modules have been imported; only `enter` adds to it.
    """

    def __init__(self) -> None:
        """Import no module yet."""
        self.declared: dict[str, OpDef] = {}

    def __getitem__(self, name: str) -> OpDef:
        if name not in self.declared and name in _MODULE_OF:
            import_module(f"fusec.ops.{_MODULE_OF[name]}")
        return self.declared[name]

    def __contains__(self, name: object) -> bool:
        return name in _MODULE_OF or name in self.declared

    def __iter__(self) -> Iterator[str]:
        return iter((*_MODULE_OF, *self._others()))

    def __len__(self) -> int:
        return len(_MODULE_OF) + len(self._others())

    def _others(self) -> list[str]:
        return [name for name in self.declared if name not in _MODULE_OF]

    def imported(self, *names: str) -> tuple[OpDef, ...]:
        """Return the operations whose modules are imported: no graph has a node of another."""
        return tuple(self.declared[name] for name in names if name in self.declared)

    def enter(self, op: OpDef, module: str) -> OpDef:
        """Add an operation that a module declares; one of the same name must not exist."""
        ours = module.removeprefix("fusec.ops.")
        if op.name in self.declared or _MODULE_OF.get(op.name, ours) != ours:
            raise InternalError(f"operation `{op.name}` is declared twice")
        if ours != module and op.name not in _MODULE_OF:
            raise InternalError(f"operation `{op.name}` is not listed in fusec/ops/table.py")
        self.declared[op.name] = op
        return op


TABLE = OpTable()
