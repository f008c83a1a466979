"""What operations on rows, lists and tables return for special numbers, by NumPy and PyTorch.

As `tests/contracts.py`, for operations that are not elementwise; and the reasons of those that have
no rows here. NONE: there is no result, and the call is rejected.
"""

from __future__ import annotations

from math import inf, log, nan

from contracts import NUMPY, OWN, TORCH

NONE = "none"
_A = [1.0, nan, 3.0]
_NAN = [nan, 1.0, -inf, inf]

ROWS: tuple[tuple[str, str, dict[str, tuple[str, object]], list[object]], ...] = (
    # source, call, inputs (type, numbers), results
    (NUMPY, "sum(x)", {"x": ("f32", [inf, -inf, 1.0])}, [nan]),
    (NUMPY, "sum(x, [1])", {"x": ("f32[2, 0]", [])}, [[0.0, 0.0]]),
    (NUMPY, "sum(x, [0])", {"x": ("f32[0, 2]", [])}, [[0.0, 0.0]]),
    (NUMPY, "sum(x)", {"x": ("bf16", [3e38, 3e38])}, [inf]),
    (NUMPY, "sum(x)", {"x": ("i8", [127, 127, -128])}, [126]),
    (NUMPY, "sum(x)", {"x": ("i64", [2**63 - 1, 1])}, [-(2**63)]),
    (NUMPY, "sum(x)", {"x": ("bool", [True, True])}, [2]),
    (NUMPY, "prod(x)", {"x": ("f32", [0.0, inf])}, [nan]),
    (NUMPY, "prod(x, [1])", {"x": ("f32[2, 0]", [])}, [[1.0, 1.0]]),
    (NUMPY, "prod(x)", {"x": ("i64", [2**62, 2])}, [-(2**63)]),
    (TORCH, "max(x)", {"x": ("f32", _A)}, [nan]),
    (TORCH, "max(x, [1])", {"x": ("f32[2, 2]", [-inf, -inf, nan, inf])}, [[-inf, nan]]),
    (TORCH, "max(x)", {"x": ("i32", [-(2**31), -(2**31)])}, [-(2**31)]),
    (TORCH, "max(x, [1])", {"x": ("f32[3, 0]", [])}, [NONE]),
    (TORCH, "max(x)", {"x": ("i32[0]", [])}, [NONE]),
    (TORCH, "max(x, [1])", {"x": ("f32[0, 3]", [])}, [[]]),
    (TORCH, "min(x)", {"x": ("f32", _A)}, [nan]),
    (TORCH, "min(x, [0])", {"x": ("f32[0, 3]", [])}, [NONE]),
    (TORCH, "min(x)", {"x": ("u8", [255, 255])}, [255]),
    (NUMPY, "any(x, [1])", {"x": ("f32[2, 2]", [nan, 0.0, -0.0, 0.0])}, [[True, False]]),
    (NUMPY, "any(x, [1])", {"x": ("bool[2, 0]", [])}, [[False, False]]),
    (NUMPY, "all(x, [1])", {"x": ("f32[2, 2]", [nan, 1.0, -0.0, 1.0])}, [[True, False]]),
    (NUMPY, "all(x, [1])", {"x": ("bool[2, 0]", [])}, [[True, True]]),
    (TORCH, "argmax(x)", {"x": ("f32", [1.0, nan, inf, nan])}, [1]),
    (TORCH, "argmax(x, [1])", {"x": ("f32[2, 3]", [5.0, 7.0, 7.0, -inf, -inf, -inf])}, [[1, 0]]),
    (TORCH, "argmax(x, [1])", {"x": ("f32[3, 0]", [])}, [NONE]),
    (TORCH, "argmin(x)", {"x": ("f32", [1.0, nan, -inf, nan])}, [1]),
    (TORCH, "argmin(x)", {"x": ("i64", [-(2**63), 0, -(2**63)])}, [0]),
    (TORCH, "argmin(x, [0])", {"x": ("f32[0, 3]", [])}, [NONE]),
    (NUMPY, "mean(x, [1])", {"x": ("f32[1, 0]", [])}, [[nan]]),
    (NUMPY, "mean(x)", {"x": ("f16", [65504.0, 65504.0])}, [65504.0]),
    (TORCH, "var(x)", {"x": ("f32", [5.0])}, [nan]),
    (TORCH, "var(x, correction=0)", {"x": ("f32", [5.0])}, [0.0]),
    (TORCH, "var(x, correction=5)", {"x": ("f32", [1.0, 3.0])}, [inf]),
    (TORCH, "var(x)", {"x": ("f32", [1.0, inf])}, [nan]),
    (TORCH, "var_mean(x)", {"x": ("f32", [1.0, inf])}, [nan, inf]),
    (NUMPY, "cumsum(x, 0)", {"x": ("f32", [inf, -inf, 1.0])}, [[inf, nan, nan]]),
    (NUMPY, "cumsum(x, 0)", {"x": ("i8", [127, 127])}, [[127, 254]]),
    (NUMPY, "cumprod(x, 0)", {"x": ("f32", [inf, 0.0, 1.0])}, [[inf, nan, nan]]),
    (TORCH, "cummax(x, 0)", {"x": ("f32", [1.0, nan, 3.0])}, [[1.0, nan, nan]]),
    (TORCH, "cummin(x, 0)", {"x": ("f32", [1.0, nan, -inf])}, [[1.0, nan, nan]]),
    (TORCH, "sort(x)", {"x": ("f32", _NAN)}, [[-inf, 1.0, inf, nan], [2, 1, 3, 0]]),
    (TORCH, "sort(x, descending=true)", {"x": ("f32", _NAN)},
     [[nan, inf, 1.0, -inf], [0, 3, 1, 2]]),
    (TORCH, "argsort(x)", {"x": ("f32", [2.0, nan, 2.0, -inf])}, [[3, 0, 2, 1]]),
    (TORCH, "topk(x, 2)", {"x": ("f32", _NAN)}, [[nan, inf], [0, 3]]),
    (TORCH, "topk(x, 2, largest=false)", {"x": ("f32", _NAN)}, [[-inf, 1.0], [2, 1]]),
    (TORCH, "softmax(x, 0)", {"x": ("f32", [-inf, -inf])}, [[nan, nan]]),
    (TORCH, "softmax(x, 0)", {"x": ("f32", [-inf, 5.0])}, [[0.0, 1.0]]),
    (TORCH, "softmax(x, 0)", {"x": ("f32", [inf, 5.0])}, [[nan, nan]]),
    (TORCH, "softmax(x, 1)", {"x": ("f32[2, 0]", [])}, [[[], []]]),
    (TORCH, "log_softmax(x, 0)", {"x": ("f32", [-inf, 5.0])}, [[-inf, 0.0]]),
    (TORCH, "log_softmax(x, 1)", {"x": ("f32[2, 0]", [])}, [[[], []]]),
    (TORCH, "layer_norm(x, [3])", {"x": ("f32", [7.0, 7.0, 7.0])}, [[0.0, 0.0, 0.0]]),
    (TORCH, "rms_norm(x, [2])", {"x": ("f32", [0.0, 0.0])}, [[0.0, 0.0]]),
    (TORCH, "gelu(x)", {"x": ("f32", [inf, nan, 0.0, -0.0])}, [[inf, nan, 0.0, -0.0]]),
    (TORCH, "gelu(x, approximate=tanh)", {"x": ("f32", [inf, nan, 0.0])}, [[inf, nan, 0.0]]),
    (TORCH, "cross_entropy(x, t)", {"x": ("f32[1, 2]", [1.0, 1.0]), "t": ("i64", [-100])}, [nan]),
    (TORCH, "cross_entropy(x, t)", {"x": ("f32[1, 2]", [1.0, 1.0]), "t": ("i64", [1])}, [log(2)]),
    (TORCH, "nll_loss(x, t)", {"x": ("f32[1, 2]", [nan, -1.0]), "t": ("i64", [1])}, [1.0]),
    (TORCH, "nll_loss(x, t, reduction=sum)",
     {"x": ("f32[1, 2]", [nan, -1.0]), "t": ("i64", [-100])}, [0.0]),
    (NUMPY, "matmul(x, w)", {"x": ("f32[1, 2]", [inf, 1.0]), "w": ("f32[2, 1]", [0.0, 1.0])},
     [[[nan]]]),
    (NUMPY, "matmul(x, w)", {"x": ("f32[1, 0]", []), "w": ("f32[0, 2]", [])}, [[[0.0, 0.0]]]),
    (TORCH, "linear(x, w)", {"x": ("f32[1, 1]", [inf]), "w": ("f32[2, 1]", [-1.0, 0.0])},
     [[[-inf, nan]]]),
    (TORCH, "scatter_add(x, i, s, 0)",
     {"x": ("f32", [1.0, 2.0]), "i": ("i64", [0, 0]), "s": ("f32", [inf, -inf])}, [[nan, 2.0]]),
    (TORCH, "scatter(x, i, s, 0)",
     {"x": ("f32", [1.0, 2.0]), "i": ("i64", [1]), "s": ("f32", [-0.0])}, [[1.0, -0.0]]),
    (TORCH, "index_add(x, i, s, 0)",
     {"x": ("i8", [127, 0]), "i": ("i64", [0]), "s": ("i8", [1])}, [[-128, 0]]),
    (TORCH, "index_put_accumulate(x, i, s)",
     {"x": ("f32[2, 1]", [nan, 0.0]), "i": ("i64", [1]), "s": ("f32[1, 1]", [1.0])},
     [[[nan], [1.0]]]),
    (TORCH, "triu(x)", {"x": ("f32[2, 2]", [1.0, nan, nan, inf])}, [[[1.0, nan], [0.0, inf]]]),
    (TORCH, "tril(x)", {"x": ("f32[2, 2]", [1.0, nan, nan, inf])}, [[[1.0, 0.0], [nan, inf]]]),
    (TORCH, "dropout(x, 1.0, rng_seed=1, rng_offset=0)", {"x": ("f32", [5.0, -3.0])},
     [[0.0, 0.0], [False, False]]),
    (TORCH, "dropout(x, 0.0, rng_seed=1, rng_offset=0)", {"x": ("f32", [inf, -0.0])},
     [[inf, -0.0], [True, True]]),
    (TORCH, "pow(x, 0.5)", {"x": ("f32", [-inf, -0.0, inf, -1.0])}, [[nan, -0.0, inf, nan]]),
    (TORCH, "pow(x, -0.5)", {"x": ("bf16", [-inf, -0.0, inf, 4.0])}, [[nan, -inf, 0.0, 0.5]]),
    (TORCH, "pow(x, f32(0.5))", {"x": ("f64", [-inf, -0.0])}, [[nan, -0.0]]),
    (NUMPY, "pow(x, 1.5)", {"x": ("f32", [-inf, -0.0])}, [[inf, 0.0]]),
    (NUMPY, "pow(x, 2)", {"x": ("f16", [-inf, 300.0])}, [[inf, inf]]),
    (NUMPY, "where(m, x, -inf)", {"m": ("bool", [True, False]), "x": ("f32", [nan, nan])},
     [[nan, -inf]]),
    (OWN, "iota(3, start=inf, step=-1.0, dtype=f32)", {}, [[inf, inf, inf]]),
)  # fmt: skip

_MOVED = "places elements elsewhere: nothing is computed"
_NAMED = "made of operations with rows of their own; its own are in test_named_ops.py"
_MEMBERS = "made of operations with rows of their own"
REASONS = {
    **dict.fromkeys(
        ("broadcast", "broadcast_in_dim", "expand", "squeeze", "flip", "reshape", "permute", "set",
         "segment_set", "slice", "pad", "cat", "update_slice", "repeat", "stride_order",
         "index_select", "select", "gather", "take_along_axis", "embedding_fwd", "unsqueeze",
         "transpose", "movedim", "flatten", "unflatten", "stack", "narrow", "split", "chunk",
         "unbind", "roll", "repeat_interleave", "zeros", "ones", "full_like", "zeros_like",
         "ones_like"), _MOVED),
    **dict.fromkeys(
        ("square", "softplus", "leaky_relu", "elu", "celu", "selu", "mish", "softsign",
         "tanhshrink", "logsigmoid", "relu6", "hardtanh", "hardsigmoid", "hardswish", "hardshrink",
         "softshrink", "glu", "logaddexp", "logit", "xlogy", "copysign", "hypot", "fmin", "fmax",
         "floor_divide", "masked_fill", "prelu", "logical_xor", "nan_to_num", "addcdiv", "isclose",
         "deg2rad", "rad2deg", "logsumexp", "std", "norm", "normalize", "cosine_similarity",
         "softmin", "count_nonzero", "nansum", "arange", "eye", "one_hot", "mse_loss", "l1_loss",
         "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
         "binary_cross_entropy_with_logits", "scaled_dot_product_attention"), _NAMED),
    **dict.fromkeys(("batch_norm", "instance_norm", "group_norm", "scaled_mm"), _MEMBERS),
    "full": "its fill values are in test_literals.py",
    "size": "an extent: sizes are checked in test_builder_errors.py",
    "shape": "an extent: sizes are checked in test_builder_errors.py",
    "welford": "the moments of var_mean, which have rows",
    "grouped_mm": "sums of matmul in groups",
    "sdpfa_fwd": "rows without keys and infinite scores are in test_masks_on_cpu.py",
    "sdpfa_bwd": "rows without keys and infinite scores are in test_masks_on_cpu.py",
    "uniform": "its bounds are in test_contracts.py, in every type",
    "rand_like": "its bounds are in test_contracts.py, in every type",
    "normal": "its extremes are in test_contracts.py, in every type",
    "randn_like": "its extremes are in test_contracts.py, in every type",
}  # fmt: skip
"""Why an operation has no rows."""
