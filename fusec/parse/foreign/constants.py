"""Numbers, types and devices that Python computes before a kernel runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.ir.dtype import DType
from fusec.parse.foreign import frameworks
from fusec.parse.numbers import number_in
from fusec.parse.syntax.trees import CallTree, Infix, Items, Literal, Name, String, Tree

MODULES = frozenset({"math", "torch", "np", "numpy", "jnp"})
CONSTANTS = {"pi": math.pi, "tau": math.tau, "e": math.e, "inf": math.inf, "nan": math.nan}
FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "sqrt": math.sqrt, "log": math.log, "log2": math.log2, "log10": math.log10,
    "exp": math.exp, "pow": math.pow, "cos": math.cos, "sin": math.sin, "floor": math.floor,
    "ceil": math.ceil,
}  # fmt: skip
_OF_NUMBERS: Mapping[str, tuple[Callable[..., float], int]] = {
    "max": (max, 2), "min": (min, 2), "int": (int, 1), "float": (float, 1),
}  # fmt: skip
"""Python's functions, and the minimum number of arguments with which they take only numbers."""


def counted(tree: CallTree) -> Tree | None:
    """Return `arange(0, 1, 0.25)` as multiples of the step; None for one of integers."""
    plain = [number_in(a.value) for a in tree.arguments if a.keyword is None]
    numbers = [n for n in plain if n is not None]
    if (
        len(numbers) < len(plain)
        or not 1 <= len(numbers) <= 3
        or all(isinstance(n, int) for n in numbers)
    ):
        return None
    start, end, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    if step == 0 or (count := math.ceil((end - start) / step)) < 1:
        return None
    text = f"cast(arange({count}), f32)" + (f" * {step}" if step != 1 else "")
    text += f" + {start}" if start > 0 else f" - {-start}" if start < 0 else ""
    return frameworks.substituted(frameworks.parsed(text), {}, tree)


def total(listed: Items) -> Tree:
    """Return the sum of the values of a list, as Python's `sum` adds them."""
    whole = listed.items[0]
    for item in listed.items[1:]:
        whole = Infix("+", whole, item, listed.start, listed.end, listed.start)
    return whole


def folded(tree: Tree) -> Tree:
    """Return the value of a Python function of numbers as a literal; other trees unchanged."""
    if not isinstance(tree, CallTree):
        return tree
    owner, _, name = tree.name.text.rpartition(".")
    numbers = [number_in(a.value) for a in tree.arguments]
    known = [n for n in numbers if n is not None]
    if len(known) != len(numbers) or any(a.keyword for a in tree.arguments):
        return tree
    if name in _OF_NUMBERS and not owner and len(known) >= _OF_NUMBERS[name][1]:
        return Literal(_OF_NUMBERS[name][0](*known), tree.start, tree.end)
    if owner not in ("math", "np") or name not in FUNCTIONS:
        return tree
    try:
        made = FUNCTIONS[name](*known)
        # NumPy's `floor` and `ceil` return floats, those of math return integers.
        return Literal(float(made) if owner == "np" else made, tree.start, tree.end)
    except (TypeError, ValueError, OverflowError):
        return tree


def number_said(tree: CallTree) -> Literal | None:
    """Return the number of `float("-inf")`; None for other calls."""
    said = tree.arguments[0].value if len(tree.arguments) == 1 else None
    text = said.text.strip().lower() if isinstance(said, String) else ""
    if tree.name.text != "float" or text.lstrip("+-") not in ("inf", "infinity", "nan"):
        return None
    return Literal(float(text), tree.start, tree.end)


def dtype_called(name: str) -> DType | None:
    try:
        return dtypes.find({"float": "float32", "long": "int64", "half": "float16"}.get(name, name))
    except FusecError:
        return None


def is_device(tree: Tree) -> bool:
    """Return whether an expression is a device of PyTorch: all tensors are on the GPU."""
    if isinstance(tree, String):
        return tree.text.partition(":")[0] in ("cuda", "cpu")
    if isinstance(tree, CallTree):
        return tree.name.text == "torch.device"
    return isinstance(tree, Name) and (tree.text == "device" or tree.text.endswith(".device"))


_TENSORS = {
    "FloatTensor": "f32", "DoubleTensor": "f64", "HalfTensor": "f16", "BFloat16Tensor": "bf16",
    "LongTensor": "i64", "IntTensor": "i32", "ShortTensor": "i16", "CharTensor": "i8",
    "ByteTensor": "u8", "BoolTensor": "bool",
}  # fmt: skip
"""PyTorch's names for tensors of a type, and the types."""


def tensor_type(tree: Tree) -> str | None:
    """Return the type of `torch.LongTensor` or `torch.cuda.LongTensor`; None for other names."""
    name = tree.text if isinstance(tree, (Name, String)) else ""
    return _TENSORS.get(name.removeprefix("torch.").removeprefix("cuda."))
