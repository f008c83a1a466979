"""PyTorch on fusec's buffers: tensors that share memory, contenders, and results in fp64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from fusec.bench.data import Inputs, Tensor
from fusec.bench.figures import Error
from fusec.ir.graph import Fusion
from fusec.run.arrays import span
from fusec.run.device import Device

TYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "bool": "bool",
    "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u8": "uint8", "c64": "complex64", "c128": "complex128",
}  # fmt: skip
"""PyTorch's types."""


class _Memory:
    """Bytes of the device as other packages take them."""

    def __init__(self, address: int, size: int) -> None:
        """Describe them; they stay their owner's."""
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip


def view_of(tensor: Tensor) -> Any:
    """Return a PyTorch tensor in the same memory."""
    import torch

    count = span(tensor.shape, tensor.strides)
    raw = torch.as_tensor(_Memory(tensor.address, count * tensor.dtype.size), device="cuda")
    return raw.view(dtype_of(tensor.dtype.name)).as_strided(tensor.shape, tensor.strides)


def dtype_of(name: str) -> Any:
    """Return PyTorch's type of a type of fusec's."""
    import torch

    return getattr(torch, TYPES[name])


def arguments_of(fusion: Fusion, inputs: Inputs) -> list[Any]:
    """Return a fusion's inputs as PyTorch has them, in order; without the generator's state."""
    given = [i.value.name for i in fusion.inputs if not i.generator]
    tensors = {name: view_of(inputs.tensors[name]) for name in given if name in inputs.tensors}
    return [tensors.get(name, inputs.numbers.get(name)) for name in given]


def on_stream(device: Device) -> AbstractContextManager[Any]:
    """Return what makes PyTorch work on the device's stream."""
    import torch

    return torch.cuda.stream(torch.cuda.ExternalStream(int(device.stream)))


def expected_of(
    function: Callable[..., Any], arguments: Sequence[Any], dtypes: Sequence[str]
) -> list[Any]:
    """Return the results in fp64, rounded to their types; inputs stay as they are."""
    import torch

    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    return rounded(function(*copies, f=torch.float64), dtypes)


def rounded(results: Any, dtypes: Sequence[str]) -> list[Any]:
    """Return results as a list, in the types of the fusion's outputs; None stays None."""
    every = list(results) if isinstance(results, (tuple, list)) else [results]
    return [None if r is None else r.to(dtype_of(d)) for r, d in zip(every, dtypes, strict=True)]


def error_of(found: Sequence[Any], expected: Sequence[Any]) -> Error:
    """Return the error of results on the GPU, as `fusec.bench.figures.error_of` has it."""
    pairs = [_error(a, b) for a, b in zip(found, expected, strict=True) if b is not None]
    return Error(max((n for n, _ in pairs), default=0.0), max((w for _, w in pairs), default=0.0))


def _error(found: Any, expected: Any) -> tuple[float, float]:
    import torch

    a, b = (t.to(torch.float64).reshape(-1) for t in (found, expected))
    finite = torch.isfinite(b)
    if not torch.equal(finite, torch.isfinite(a)):
        return float("inf"), float("inf")
    zero = torch.zeros((), dtype=torch.float64, device=b.device)
    a, b = torch.where(finite, a, zero), torch.where(finite, b, zero)
    difference = (a - b).abs()
    if not b.numel():
        return 0.0, 0.0
    whole, largest = float(b.norm()), float(b.abs().max())
    norm, worst = float(difference.norm()), float(difference.max())
    return (norm / whole if whole else norm), (worst / largest if largest else worst)


def replayed(device: Device, issue: Callable[[], Any]) -> Callable[[], None]:
    """Return what replays, as a CUDA graph, work that PyTorch issues."""
    import torch

    graph: Any = torch.cuda.CUDAGraph()
    stream: Any = torch.cuda.ExternalStream(int(device.stream))
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
        issue()
    return graph.replay


def version_of(package: str) -> str | None:
    """Return the version of an installed package, None where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions(packages: Mapping[str, str]) -> dict[str, str]:
    """Return the version of each package, by peer; those that are not installed are left out."""
    found = {peer: version_of(package) for peer, package in packages.items()}
    return {peer: version for peer, version in found.items() if version is not None}
