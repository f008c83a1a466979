"""cuBLASLt by its own interface: the quickest of the algorithms that its heuristic proposes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from statistics import median
from typing import Any

LIBRARY = "libcublasLt.so.13"
REQUESTED = 20
TRIES = 3
WORKSPACE = 32 << 20
FLUSH = 256 << 20
# Of cublas_api.h, cublasLt.h and library_types.h.
_BF16, _F32, _COMPUTE_F32 = 14, 0, 68
_TRANSPOSE = (3, 4)
_WORKSPACE_BYTES = 1
_OP = {"n": 0, "t": 1}


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@cache
def _library() -> tuple[Any, ctypes.c_void_p]:
    """Return the library, which PyTorch has loaded, and a handle."""
    library, handle = ctypes.CDLL(LIBRARY), ctypes.c_void_p()
    _check(library.cublasLtCreate(ctypes.byref(handle)))
    return library, handle


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLASLt returned {status}")


def best(a: Any, b: Any, layout: str) -> Callable[[], Any]:
    """Return what issues the quickest algorithm for a product of row-major bf16 tensors.

    layout: `nt`, `nn` or `tn`, as in `benchmarks.products`. Each algorithm runs three times with a
    cold L2; all need at most 32 MiB of work space.
    """
    import torch

    library, handle = _library()
    m = a.shape[0] if layout[0] == "n" else a.shape[1]
    n = b.shape[0] if layout[1] == "t" else b.shape[1]
    result = torch.empty(m, n, dtype=a.dtype, device=a.device)
    space = torch.empty(WORKSPACE, dtype=torch.uint8, device=a.device)
    description = ctypes.c_void_p()
    _check(library.cublasLtMatmulDescCreate(ctypes.byref(description), _COMPUTE_F32, _F32))
    # Its matrices are column-major: it computes the transposed product, of B and A.
    for attribute, letter in zip(_TRANSPOSE, reversed(layout), strict=True):
        op = ctypes.c_int32(_OP[letter])
        _check(
            library.cublasLtMatmulDescSetAttribute(
                description, attribute, ctypes.byref(op), ctypes.sizeof(op)
            )
        )
    layouts = [_layout(library, t.shape[1], t.shape[0]) for t in (b, a, result)]
    preference = ctypes.c_void_p()
    _check(library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
    size = ctypes.c_size_t(WORKSPACE)
    _check(
        library.cublasLtMatmulPreferenceSetAttribute(
            preference, _WORKSPACE_BYTES, ctypes.byref(size), ctypes.sizeof(size)
        )
    )
    found, count = (_Heuristic * REQUESTED)(), ctypes.c_int()
    left, right, out = layouts
    _check(
        library.cublasLtMatmulAlgoGetHeuristic(
            handle, description, left, right, out, out, preference, REQUESTED, found,
            ctypes.byref(count),
        )
    )  # fmt: skip
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    def issue(algorithm: _Heuristic) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _check(
            library.cublasLtMatmul(
                handle, description, ctypes.byref(one), ctypes.c_void_p(b.data_ptr()), left,
                ctypes.c_void_p(a.data_ptr()), right, ctypes.byref(zero),
                ctypes.c_void_p(result.data_ptr()), out, ctypes.c_void_p(result.data_ptr()), out,
                ctypes.byref(algorithm.algorithm), ctypes.c_void_p(space.data_ptr()),
                ctypes.c_size_t(WORKSPACE), stream,
            )
        )  # fmt: skip

    able = [each for each in found[: count.value] if each.state == 0]
    quickest = min(able, key=lambda each: _seconds(lambda: issue(each)))

    def run() -> Any:
        issue(quickest)
        return result

    return run


def _layout(library: Any, rows: int, columns: int) -> ctypes.c_void_p:
    layout = ctypes.c_void_p()
    size, pitch = ctypes.c_uint64, ctypes.c_int64
    _check(
        library.cublasLtMatrixLayoutCreate(
            ctypes.byref(layout), _BF16, size(rows), size(columns), pitch(rows)
        )
    )
    return layout


def _seconds(issue: Callable[[], None]) -> float:
    """Return the median time of a few runs with a cold L2, after one."""
    import torch

    flush = torch.empty(FLUSH, dtype=torch.uint8, device="cuda")
    issue()
    taken: list[float] = []
    for _ in range(TRIES):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        first.record()
        issue()
        last.record()
        last.synchronize()
        taken.append(first.elapsed_time(last))
    return median(taken)
