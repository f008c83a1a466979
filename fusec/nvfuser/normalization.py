"""nvFuser's normalization layers: PyTorch's, computed by fusions forwards and backwards."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fusec.nvfuser.definition import DirectDefinition
from fusec.nvfuser.descriptors import compute_tensor_descriptor
from fusec.nvfuser.pytorch_utils import torch_dtype_to_nvfuser_dtype
from fusec.nvfuser.torch_module import torch_module
from fusec.parse.dsl import DataType, Tensor

torch = torch_module()

Layout = tuple[Any, ...]
"""Declaration of a tensor: sizes (-1: any), contiguity, stride order and type; () for none."""


def _layout(tensor: Any) -> Layout:
    if tensor is None:
        return ()
    contiguity, order = compute_tensor_descriptor(tensor.shape, tensor.stride())
    sizes = tuple(1 if n == 1 else -1 for n in tensor.shape)
    return sizes, tuple(contiguity), tuple(order), torch_dtype_to_nvfuser_dtype(tensor.dtype)


def _declare(fd: DirectDefinition, layout: Layout) -> Any:
    """Return a tensor with this layout; None for none."""
    if not layout:
        return None
    shape, contiguity, order, dtype = layout
    return fd.define_tensor(shape=shape, contiguity=contiguity, dtype=dtype, stride_order=order)


@lru_cache(maxsize=256)
def _forward(
    layouts: tuple[Layout, ...], use_input_stats: bool, momentum: float, eps: float
) -> DirectDefinition:
    """Return the definition of y, means and 1 / deviations; running values are updated in place."""
    with DirectDefinition() as fd:
        x, weight, bias, running_mean, running_var = (_declare(fd, layout) for layout in layouts)
        results = fd.ops.instance_norm(
            x, weight, bias, running_mean, running_var,
            use_input_stats=use_input_stats, momentum=momentum, eps=eps,
        )  # fmt: skip
        for result in results:
            fd.add_output(result)
    return fd


@lru_cache(maxsize=256)
def _backward(layouts: tuple[Layout, ...], use_input_stats: bool) -> DirectDefinition:
    """Return the definition of the gradients of x and, with a weight, of weight and bias."""
    with DirectDefinition() as fd:
        declared = [_declare(fd, layout) for layout in layouts]
        wide: list[Any] = [None if t is None else fd.ops.cast(t, dtype=_wide(t)) for t in declared]
        grad, x, mean, invstd, weight = wide
        sizes, rank = fd.ops.shape(grad), len(layouts[1][0])
        inner = list(range(2, rank))

        def spread(value: Any) -> Any:
            dims = [0, 1] if value.ndim == 2 else [1]
            return fd.ops.broadcast_in_dim(value, shape=sizes, broadcast_dims=dims)

        def centred(value: Any) -> Any:
            return value - fd.ops.broadcast_in_dim(
                fd.ops.mean(value, dims=inner), shape=sizes, broadcast_dims=[0, 1]
            )

        normal = (x - spread(mean)) * spread(invstd)
        scaled = grad if weight is None else grad * spread(weight)
        if use_input_stats:
            share = fd.ops.broadcast_in_dim(
                fd.ops.mean(scaled * normal, dims=inner), shape=sizes, broadcast_dims=[0, 1]
            )
            scaled = centred(scaled) - normal * share
        fd.add_output(fd.ops.cast(scaled * spread(invstd), dtype=layouts[1][3]))
        if weight is not None:
            outer = [0, *inner]
            for value in (grad * normal, grad):
                fd.add_output(fd.ops.cast(fd.ops.sum(value, dims=outer), dtype=layouts[4][3]))
    return fd


def _wide(tensor: Tensor) -> DataType:
    return DataType.Double if tensor.dtype is DataType.Double else DataType.Float


class NormNVFuserFunction(torch.autograd.Function):
    """Instance norm as a PyTorch autograd function."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
        use_input_stats: bool, momentum: float, eps: float,
    ) -> Any:  # fmt: skip
        """Return the normalized tensor; update the running values."""
        given = (x, weight, bias, running_mean, running_var)
        fd = _forward(tuple(map(_layout, given)), use_input_stats, momentum, eps)
        y, mean, invstd = fd.execute([t for t in given if t is not None])
        ctx.save_for_backward(x, mean, invstd, weight)
        ctx.use_input_stats = use_input_stats
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Sequence[Any]:
        """Return the gradients of the arguments of `forward`."""
        given = (grad, *ctx.saved_tensors)
        fd = _backward(tuple(map(_layout, given)), ctx.use_input_stats)
        grads = fd.execute([t for t in given if t is not None])
        return (*grads, *[None] * (8 - len(grads)))


class _InstanceNorm:
    """Code common to the layers; PyTorch's layer of the same rank is the next base class."""

    def forward(self: Any, input: Any) -> Any:
        """Return the normalized tensor, of a batch or of one sample."""
        self._check_input_dim(input)
        if input.dim() == self._get_no_batch_dim():
            return self.forward(input.unsqueeze(0)).squeeze(0)
        use_input_stats = self.training or not self.track_running_stats
        return NormNVFuserFunction.apply(
            input, self.weight, self.bias, self.running_mean, self.running_var,
            use_input_stats, self.momentum, self.eps,
        )  # fmt: skip


class InstanceNorm1dNVFuser(_InstanceNorm, torch.nn.InstanceNorm1d):
    """Instance norm of [N, C, L]."""


class InstanceNorm2dNVFuser(_InstanceNorm, torch.nn.InstanceNorm2d):
    """Instance norm of [N, C, H, W]."""


class InstanceNorm3dNVFuser(_InstanceNorm, torch.nn.InstanceNorm3d):
    """Instance norm of [N, C, D, H, W]."""
