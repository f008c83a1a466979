"""Functions that PyTorch composes of others: einsum, losses, batch norms, and pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fusec.ir.dim import Dim, product
from fusec.models.graph import Argument
from fusec.models.rules.build import Build, as_dim, axis_of, rule, size_texts
from fusec.parse.foreign.einsum import expression_of


@rule("aten.max.dim", "aten.min.dim")
def extremum(b: Build, self: Argument, dim: int, keepdim: bool = False) -> list[str]:
    """Return the largest or smallest elements along a dim, and their indices."""
    name, kept = b.node.operation, ", true" * keepdim
    text, axis = b.text(self), axis_of(dim, len(b.shape_of(self)))
    return [f"{name}({text}, [{axis}]{kept})", f"arg{name}({text}, [{axis}]{kept})"]


@rule("aten.outer.default")
def outer(b: Build, self: Argument, vec2: Argument) -> str:
    """Return the outer product of two vectors."""
    return f"unsqueeze({b.text(self)}, 1) * {b.text(vec2)}"


@rule("aten.where.Scalar")
def where_numbers(b: Build, condition: Argument, self: Argument, other: Argument) -> str:
    """Return one of two numbers, elementwise."""
    numbers = f"{b.text(self)}, {b.text(other)}"
    return f"cast(where({b.text(condition)}, {numbers}), {b.result.dtype})"


@rule("aten.pixel_shuffle.default")
def pixel_shuffle(b: Build, self: Argument, upscale_factor: int) -> str:
    """Move parts of the channels into the spatial dims."""
    *lead, height, width = b.shape_of(self)
    r, channels = upscale_factor, b.shape[-3]
    rank = len(lead) - 1
    parts = (*lead[:-1], channels, as_dim(r), as_dim(r), height, width)
    order = [*range(rank), rank, rank + 3, rank + 1, rank + 4, rank + 2]
    return f"reshape(permute(reshape({b.text(self)}, {size_texts(parts)}), {order}), " + (
        f"{size_texts(b.shape)})"
    )


@rule("aten.meshgrid.indexing", "aten.meshgrid.default")
def meshgrid(b: Build, tensors: Sequence[Argument], indexing: str = "ij") -> list[str]:
    """Return each vector along its own dim of a grid."""
    order = [1, 0, *range(2, len(tensors))] if indexing == "xy" else list(range(len(tensors)))
    shapes = [b.shape_of(t)[0] if b.shape_of(t) else as_dim(1) for t in tensors]
    grid = [shapes[k] for k in order]
    texts: list[str] = []
    for place, tensor in enumerate(tensors):
        axis = order.index(place)
        sides = [str(e) if k == axis else "1" for k, e in enumerate(grid)]
        own = f"reshape({b.text(tensor)}, [{', '.join(sides)}])"
        texts.append(f"expand({own}, {size_texts(grid)})")
    return texts


@rule("aten.einsum.default")
def einsum(b: Build, equation: str, tensors: Sequence[Argument], path: Argument = None) -> str:
    """Return a matmul of grouped dims for a contraction of two operands, else a product and sum."""
    plain = equation.replace(" ", "")
    inputs, _, output = plain.partition("->")
    terms = inputs.split(",")
    if len(terms) == 2 and all(len(set(t)) == len(t) and t.isalpha() for t in (*terms, output)):
        found = _contracted(b, terms, output, tensors)
        if found is not None:
            return found
    made = expression_of(plain, [len(b.shape_of(t)) for t in tensors])
    if made is None:
        raise b.unsupported(f"the equation `{equation}` has `...` or an index twice in a term")
    text, names = made
    operands = dict(zip(names, map(b.text, tensors), strict=True))
    return re.sub(r"\w+", lambda word: operands.get(word[0], word[0]), text)


def _contracted(
    b: Build, terms: Sequence[str], output: str, tensors: Sequence[Argument]
) -> str | None:
    """Return the matmul of two operands; None if a summed index is in only one of them."""
    left, right = terms
    sizes: dict[str, Dim] = {}
    for term, tensor in zip(terms, tensors, strict=True):
        sizes |= zip(term, b.shape_of(tensor), strict=True)
    batch = [c for c in output if c in left and c in right]
    rows = [c for c in output if c in left and c not in right]
    columns = [c for c in output if c in right and c not in left]
    summed = [c for c in left if c in right and c not in output]
    alone = (set(left) ^ set(right)) - set(output)
    if not summed or alone or len(batch) + len(rows) + len(columns) != len(output):
        return None

    def matrix(tensor: Argument, term: str, first: list[str], second: list[str]) -> str:
        order = [*batch, *first, *second]
        text = b.text(tensor)
        if order != list(term):
            text = f"permute({text}, {[term.index(c) for c in order]})"
        shape = [*(sizes[c] for c in batch), *(product(sizes[c] for c in g) for g in
                                               (first, second))]  # fmt: skip
        if len(first) == len(second) == 1:
            return text
        return f"reshape({text}, {size_texts(shape)})"

    text = (
        f"{matrix(tensors[0], left, rows, summed)} @ {matrix(tensors[1], right, summed, columns)}"
    )
    made = [*batch, *rows, *columns]
    if not len(rows) == len(columns) == 1:
        text = f"reshape({text}, {size_texts([sizes[c] for c in made])})"
    if made == list(output):
        return text
    return f"permute({b.let(text, 'product')}, {[made.index(c) for c in output]})"


_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


@rule("aten.cross_entropy_loss.default")
def cross_entropy(
    b: Build,
    self: Argument,
    target: Argument,
    weight: Argument = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> str:
    """Return the cross entropy of logits and class indices."""
    if weight is not None:
        raise b.unsupported("its classes have weights")
    return (
        f"cross_entropy({b.text(self)}, {b.text(target)}, {b.text(ignore_index)}, "
        f'"{_REDUCTIONS[reduction]}", {label_smoothing})'
    )


@rule("aten.nll_loss_nd.default", "aten.nll_loss_forward.default", "aten.nll_loss.default")
def nll_loss(
    b: Build,
    self: Argument,
    target: Argument,
    weight: Argument = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> list[str]:
    """Return the negative log probabilities of classes, and the number of those that count."""
    if weight is not None:
        raise b.unsupported("its classes have weights")
    operands = f"{b.text(self)}, {b.text(target)}, {b.text(ignore_index)}"
    counted = f"sum(cast({b.text(target)} != {b.text(ignore_index)}, {b.result.dtype}))"
    return [f'nll_loss({operands}, "{_REDUCTIONS[reduction]}")', counted]


@rule(
    "aten.batch_norm.default", "aten._native_batch_norm_legit_no_training.default",
    "aten.native_batch_norm.default",
)  # fmt: skip
def batch_norm(
    b: Build,
    input: Argument,
    weight: Argument,
    bias: Argument,
    running_mean: Argument,
    running_var: Argument,
    *rest: Argument,
    **named: Argument,
) -> list[str | None]:
    """Normalize by the running statistics, as a model in evaluation mode."""
    values = dict(zip(("training", "momentum", "eps"), rest, strict=False)) | named
    if b.node.operation.endswith("no_training"):
        values = dict(zip(("momentum", "eps"), rest, strict=False)) | named
    if values.get("training") or running_mean is None:
        raise b.unsupported("it trains", "export the model after `model.eval()`")
    operands = ", ".join(map(b.text, (input, weight, bias, running_mean, running_var)))
    made = f"batch_norm({operands}, eps={b.text(values['eps'])}, training=false)"
    return [b.let_all(made, ("output", "_", "_"))[0], None, None]


@rule("aten.norm.ScalarOpt_dim", "aten.linalg_vector_norm.default")
def norm(
    b: Build,
    self: Argument,
    p: Argument = None,
    dim: Argument = None,
    keepdim: bool = False,
    ord: Argument = 2,
    dtype: Argument = None,
) -> str:
    """Return the p-norm over dims."""
    power = float(ord if p is None else p)
    dims = "" if dim is None else f", {b.text(dim if isinstance(dim, list) else [dim])}"
    text, kind = b.text(self), b.dtype_of(self)
    if kind.is_complex:
        text, kind = f"abs({text})", kind.part
    operand = b.cast(text, kind, b.result.dtype)
    return f"norm({operand}, {b.text(power)}{dims}{', keepdim=true' * keepdim})"


@rule("aten.index_copy.default")
def index_copy(b: Build, self: Argument, dim: int, index: Argument, source: Argument) -> str:
    """Return a tensor with slices replaced at an index."""
    shape = b.shape_of(source)
    axis = axis_of(dim, len(shape))
    sides = [str(e) if k == axis else "1" for k, e in enumerate(shape)]
    spread = f"expand(reshape({b.text(index)}, [{', '.join(sides)}]), {size_texts(shape)})"
    return f"scatter({b.text(self)}, {spread}, {b.text(source)}, {axis})"


@rule("aten.rand.default", "aten.randn.default")
def random(b: Build, *args: Argument, **_: Argument) -> str:
    """Return random numbers, uniform in [0, 1) or standard normal."""
    del args
    name = "uniform" if b.node.operation == "rand" else "normal"
    return f"{name}(0.0, 1.0, {size_texts(b.shape)}, dtype={b.result.dtype})"
