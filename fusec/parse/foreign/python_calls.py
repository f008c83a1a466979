"""Calls of PyTorch with other argument positions than in fusec, as calls of operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from operator import is_

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import Dim
from fusec.ops import TABLE
from fusec.ops.frameworks import find_bare
from fusec.ops.frameworks.entry import LIKE, PAIRS, PARTS
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.constants import counted, dtype_called, is_device, tensor_type, total
from fusec.parse.foreign.densities import density
from fusec.parse.foreign.einops import FUNCTIONS as EINOPS
from fusec.parse.foreign.einops import einops
from fusec.parse.foreign.einsum import einsum, in_letters
from fusec.parse.foreign.extents import listed_sizes, product_of
from fusec.parse.foreign.known import Known
from fusec.parse.foreign.repeated import is_comprehension, repeated
from fusec.parse.foreign.translation import part_of
from fusec.parse.foreign.uses import receiver_of, with_receiver
from fusec.parse.syntax.lines import OF_LISTS
from fusec.parse.syntax.trees import (
    Argument,
    CallTree,
    Items,
    Literal,
    Name,
    Prefix,
    Range,
    String,
    Subscript,
    Tree,
    integer_literal,
)

JOINING = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack"})
_OF_SHAPES = frozenset({"size", "dim", "numel", "nelement", "transpose", "squeeze"})
"""Methods whose value follows from the shape of a tensor."""
_TENSORS = frozenset({"tensor", "as_tensor", "LongTensor", "array"})
"""Functions that create a tensor from a list."""
_OF_MODES = frozenset({"dropout", "batch_norm", "instance_norm"})
"""Functions that differ between training and evaluation."""
_WITH_CORRECTION = frozenset({"var", "std", "var_mean", "std_mean"})
_SPLITTING = {
    "tensor_split": "chunk", "hsplit": "chunk", "vsplit": "chunk", "dsplit": "chunk",
    "array_split": "chunk", "split_with_sizes": "split", "msort": "sort",
}  # fmt: skip
"""Functions with several results, and the corresponding operations."""


class PythonCalls(Known, ABC):
    """Rewrites calls that depend on shapes, types or several results."""

    unknown: list[str]
    """Parts of the last line that a reader has to fill in."""

    @abstractmethod
    def quietly(self, tree: Tree) -> Tree:
        """Return an expression without Python's parts, without recording these."""

    def count_of(self, call: CallTree) -> int:
        """Return how many results a call has; 0 if that is unknown before it is read."""
        name = call.name.text.rpartition(".")[2]
        op, arguments = TABLE.get(_SPLITTING.get(name, name)), with_receiver(call)
        if op is None:
            return 0
        if op.name in ("chunk", "split", "unbind"):
            given = next((a.value for a in arguments[1:] if a.keyword is None), None)
            number = None if given is None else integer_literal(given)
            if op.name == "split" and isinstance(given, Items):
                return len(given.items)
            return number or 0 if op.name == "chunk" else 0
        return 0 if op.many else len(op.results)

    def results_of(self, tree: Tree) -> Items | None:
        """Return the results of `chunk(x, 2)`, or a part of them, as a list; None for others."""
        call = tree.base if isinstance(tree, Subscript) and len(tree.keys) == 1 else tree
        if not isinstance(call, CallTree) or call.name.text.rpartition(".")[2] not in OF_LISTS:
            return None
        at = tree.start
        places = (Literal(k, at, at) for k in range(self.count_of(call)))
        parts = [Subscript(call, (place,), at, tree.end) for place in places]
        if isinstance(tree, Subscript):
            key = tree.keys[0]
            if not isinstance(key, Range):
                return None
            ends = (key.low, key.high, key.step)
            bounds = [None if b is None else integer_literal(b) for b in ends]
            given = sum(b is not None for b in ends)
            if sum(b is not None for b in bounds) < given or bounds[2] == 0:
                return None
            parts = parts[slice(*bounds)]
        return Items(tuple(parts), at, tree.end) if parts else None

    # -- known properties

    def _einsum(self, tree: CallTree) -> Tree | None:
        """Return a sum of products by its equation; einops has it last, with words as indices."""
        values = [a.value for a in tree.arguments]
        if len(values) > 1 and isinstance(values[-1], String):
            tree = replace(tree, arguments=(tree.arguments[-1], *tree.arguments[:-1]))
            words = String(in_letters(values[-1].text), values[-1].start, values[-1].end)
            values = [words, *values[:-1]]
        if not values or not isinstance(values[0], String):
            return None
        try:
            operands = values[1:]
            if len(operands) == 1 and isinstance(operands[0], Items):
                operands = [*operands[0].items]
            shapes = [self._shape(v) for v in operands]
            ranks = [None if shape is None else len(shape) for shape in shapes]
            return einsum(values[0].text, operands, tree, ranks)
        except FusecError as error:
            raise error.at(self._span(tree)) from None

    def _call(self, tree: CallTree) -> Tree | None:
        arguments = self._arguments(tree)
        if arguments is not None:
            return replace(tree, arguments=arguments)
        owner, _, name = tree.name.text.rpartition(".")
        values: list[Tree] = [a.value for a in tree.arguments]
        if name == "einsum" and (made := self._einsum(tree)) is not None:
            return made
        if (
            name in ("min", "max", "eps")
            and not owner
            and (limit := self._limit(values, name)) is not None
        ):
            return Literal(limit, tree.start, tree.end)
        listed = values[0] if len(values) == 1 and isinstance(values[0], Items) else None
        if tree.name.text == "sum" and listed is not None and is_comprehension(listed):
            values = list[Tree]([repeated(listed, self._span)])
        if tree.name.text == "sum" and len(values) == 1 and (parts := self.results_of(values[0])):
            return total(parts)
        summed = tree.name.text == "sum" and len(values) == 1 and isinstance(values[0], Items)
        if summed and isinstance(values[0], Items) and values[0].items:
            return total(values[0])
        if name in EINOPS and owner in ("", "einops") and (made := self._rearranged(tree)):
            return made
        if name == "arange" and (made := counted(tree)) is not None:
            return made
        if name in JOINING and (joined := self._joined(tree)) is not None:
            return joined
        if name == "where" and len(values) == 1 and self._holds_values(values[0]):
            raise Unsupported(
                "`where` of a condition alone: the shape of its result depends on the data",
                span=self._span(tree),
                help="`where(condition, x, 0)` keeps the shape",
            )
        if name == "index_select" and (made := self._selected(tree)) is not None:
            return made
        if name in ("log_prob", "entropy") and (made := density(tree)) is not None:
            return made
        if name in PAIRS and self._is_of_two(tree):
            named = replace(tree.name, text=PAIRS[name][0])
            return replace(tree, name=named, arguments=with_receiver(tree))
        if tree.name.text in (".values", ".indices") and isinstance(values[0], CallTree):
            place = int(name == "indices")
            found = self._result(values[0], place)
            if found is not None or self.count_of(values[0]) != 2:
                return found
            key = Literal(place, tree.start, tree.end)
            return Subscript(values[0], (key,), tree.start, tree.end)
        return self._method(tree, owner, name, values)

    def _result(self, call: CallTree, place: int) -> Tree | None:
        """Return one result of a function whose results are separate operations."""
        _, dot, name = call.name.text.rpartition(".")
        if name in PARTS and (dot or name == "divmod"):
            text, entry = PARTS[name][place], find_bare(name)
            if text is None or entry is None:
                raise Unsupported(
                    f"the indices of `{name}` have no operation",
                    span=self._span(call.name),
                    help=f"`{name}(x, dim)` returns the values alone",
                )
            called = replace(call, arguments=with_receiver(call))
            return part_of(entry, text, called, self._type_of)
        if not dot or name not in PAIRS or len(with_receiver(call)) < 2:
            return None
        word = name if place == 0 else PAIRS[name][1]
        return replace(call, name=replace(call.name, text=word), arguments=with_receiver(call))

    def _limit(self, values: list[Tree], name: str) -> float | None:
        """Return the number of `torch.finfo(dtype).min` or `torch.iinfo(dtype).max`."""
        inner = values[0] if len(values) == 1 else None
        if not isinstance(inner, CallTree) or not inner.arguments:
            return None
        kind = inner.name.text.rpartition(".")[2]
        said = inner.arguments[0].value
        named = self.quietly(said)
        dtype = dtype_called(named.text) if isinstance(named, Name) else None
        if dtype is not None and kind == "iinfo" and dtype.is_integer:
            return {"min": dtype.integers[0], "max": dtype.integers[-1]}.get(name)
        if dtype is None or kind != "finfo" or not dtype.is_float:
            return None
        limits = {"max": dtype.largest, "min": -dtype.largest, "eps": 2 * dtype.epsilon}
        return limits.get(name)

    def _arguments(self, tree: CallTree) -> tuple[Argument, ...] | None:
        """Return arguments without `*` and Python's keywords; None if there are none."""
        made: list[Argument] = []
        name = tree.name.text.rpartition(".")[2]
        before = len(with_receiver(tree)) - len(tree.arguments)
        words = {a.keyword.text for a in tree.arguments if a.keyword}
        for argument in tree.arguments:
            word, value = argument.keyword.text if argument.keyword else "", argument.value
            given = value.value if isinstance(value, Literal) else None
            is_third = before + len(made) == 2 and not word
            if is_third and isinstance(given, bool) and name in _WITH_CORRECTION:
                # It is `unbiased` in PyTorch's older form; the fourth is `keepdim`.
                value = Literal(int(given), value.start, value.end)
                made.append(Argument(None, value))
                continue
            of_mode = isinstance(value, Name) and value.text.endswith(".training")
            if of_mode and name in _OF_MODES:
                continue  # files have one mode: training, where the two differ
            if name == "dropout" and isinstance(value, Name) and self._is_of_self(value):
                self.unknown.append(f"instead of 0.1 the number that `{value.text}` is")
                made.append(replace(argument, value=Literal(0.1, value.start, value.end)))
                continue
            if isinstance(value, Prefix) and value.operator == "*":
                listed = self.quietly(value.operand)
                if not isinstance(listed, Items):
                    return None
                made += [Argument(None, item) for item in listed.items]
            elif word == "unbiased" and "correction" in words:
                continue  # PyTorch has one or the other
            elif word == "unbiased" and isinstance(value, Literal) and argument.keyword:
                number = Literal(int(bool(value.value)), value.start, value.end)
                made.append(Argument(replace(argument.keyword, text="correction"), number))
            else:
                made.append(argument)
        made = [_of_python(argument, name, before + k) for k, argument in enumerate(made)]
        same = len(made) == len(tree.arguments) and all(map(is_, made, tree.arguments))
        return None if same else tuple(made)

    def _rearranged(self, tree: CallTree) -> Tree | None:
        """Return a call of einops rewritten for fusec; None for an operation with that name."""
        try:
            return einops(tree, self._type_of, self._size)
        except FusecError as error:
            raise error.at(self._span(tree.arguments[1].value)) from None

    def _is_of_self(self, name: Name) -> bool:
        """Return whether a name is a number of a module, which the file does not have."""
        owner, _, rest = name.text.partition(".")
        return owner == "self" and rest != "training" and self._value(rest) is None

    def _joined(self, tree: CallTree) -> Tree | None:
        """Return `cat(x, y, dim=1)` with a list of the tensors; None if it already has one."""
        plain = [a for a in tree.arguments if a.keyword is None]
        tensors = [a.value for a in plain if isinstance(a.value, Name) and self._value(a.value)]
        if len(tensors) < 2 or [a.value for a in plain[: len(tensors)]] != tensors:
            return None
        listed = Argument(None, Items(tuple(tensors), tensors[0].start, tensors[-1].end))
        return replace(tree, arguments=(listed, *tree.arguments[len(tensors) :]))

    def _tiled(self, tree: CallTree) -> Tree | None:
        """Return `x.tile(2)` with a repeat for each dim; None if it already has these."""
        x, *rest = (a.value for a in with_receiver(tree))
        listed = rest[0] if len(rest) == 1 and isinstance(rest[0], Items) else None
        given = [*listed.items] if listed is not None else rest
        shape = self._shape(x)
        if shape is None or not given or len(given) >= len(shape):
            return None
        ones = [Literal(1, tree.start, tree.start)] * (len(shape) - len(given))
        repeats = Items((*ones, *given), tree.start, tree.end)
        name = Name("repeat", tree.start, tree.start)
        return CallTree(name, (Argument(None, x), Argument(None, repeats)), tree.start, tree.end)

    def _selected(self, tree: CallTree) -> Tree | None:
        """Return `x.index_select(1, torch.tensor([0, 2]))` as a subscript; None for other calls."""
        values = [a.value for a in with_receiver(tree) if a.keyword is None]
        if len(values) != 3:
            return None
        base, *rest = values
        axes = [integer_literal(v) for v in rest]
        axis = next((a for a in axes if a is not None), None)
        index = rest[1] if axes[0] is not None else rest[0]
        shape = self._shape(base) if is_tensor_of_list(index) else None
        if shape is None or axis is None or not -len(shape) <= axis < len(shape):
            return None
        whole = [Range(None, None, None, tree.start, tree.start)] * (axis % len(shape))
        return Subscript(base, (*whole, list_of_tensor(index)), tree.start, tree.end)

    def _is_of_two(self, tree: CallTree) -> bool:
        """Return whether a call of `max` or `min` is the elementwise one of two tensors."""
        arguments = with_receiver(tree)
        plain = len(arguments) == 2 and not any(a.keyword for a in arguments)
        return plain and all(self._holds_values(a.value) for a in arguments)

    def _method(self, tree: CallTree, owner: str, name: str, values: list[Tree]) -> Tree | None:
        if not owner and name == "len" and len(values) == 1:
            shape = self._shape(values[0])
            return frameworks.size_tree(shape[0], tree) if shape else None
        whole = self._shape(values[0]) if tree.name.text == "torch.numel" and values else None
        if whole is not None:
            return frameworks.size_tree(product_of(whole), tree)
        receiver = receiver_of(tree)
        rest = values if owner else values[1:]
        asked = receiver is not None and name in _OF_SHAPES and not rest
        known = self._shape(receiver) if asked and receiver is not None else None
        if known is not None and (made := _of_shape(name, known, tree)) is not None:
            return made
        if name == "transpose" and known is not None and receiver is not None and not rest:
            return frameworks.reversed_dims(receiver, len(known), tree)  # NumPy's method
        arguments = with_receiver(tree)
        if name == "squeeze" and known is None and len(arguments) == 1:
            receiver, rest = arguments[0].value, []
            known = self._shape(receiver)
        if name == "squeeze" and known is not None and not rest:
            ones = [axis for axis, size in enumerate(known) if size == 1]
            made = frameworks.parsed(f"squeeze(x, {ones})" if ones else "x")
            return frameworks.substituted(made, {"x": receiver}, tree) if receiver else None
        if name == "item" and receiver is not None and not rest:
            type = self._type_of(receiver)
            if type is not None and type.shape is None:
                return receiver
        if name == "tile" and (made := self._tiled(tree)) is not None:
            return made
        if name in ("cuda", "cpu", "numpy") and receiver is not None and not rest:
            return receiver
        if receiver is None or not rest:
            return None
        other = self._value(rest[0])
        if name in LIKE and other is not None:
            like = Name(other.type.dtype.name, rest[0].start, rest[0].end)
            second = like if name == "type_as" else listed_sizes(other.type.shape or (), rest[0])
            arguments = (Argument(None, receiver), Argument(None, second))
            return replace(tree, name=replace(tree.name, text=LIKE[name]), arguments=arguments)
        if name == "type" and len(rest) == 1 and (dtype := tensor_type(rest[0])) is not None:
            called = Argument(None, Name(dtype, rest[0].start, rest[0].end))
            return replace(tree, arguments=(*tree.arguments[: len(values) - 1], called))
        moved = [a for a in tree.arguments if not _is_flag(a)][len(values) - len(rest) :]
        if name == "to" and len(moved) == 1 and is_device(moved[0].value):
            return receiver
        if name == "to" and len(rest) > 1 and is_device(rest[0]):
            kept = tree.arguments[: len(values) - len(rest)]
            return replace(tree, arguments=(*kept, *tree.arguments[len(kept) + 1 :]))
        if name != "to" or len(rest) != 1:
            return None
        if is_device(rest[0]):
            return receiver
        if other is None:
            return None
        dtype = Argument(None, Name(other.type.dtype.name, rest[0].start, rest[0].end))
        return replace(tree, arguments=(*tree.arguments[: len(values) - 1], dtype))


def _of_shape(name: str, shape: Sequence[Dim], at: Tree) -> Tree | None:
    """Return the value of `x.size()`, `x.dim()` or `x.numel()`; None for other methods."""
    if name == "size":
        return listed_sizes(shape, at)
    if name in ("numel", "nelement"):
        return frameworks.size_tree(product_of(shape), at)
    return Literal(len(shape), at.start, at.end) if name == "dim" else None


def is_tensor_of_list(tree: Tree) -> bool:
    """Return whether an expression is `torch.tensor([0, 2])`."""
    if not isinstance(tree, CallTree) or tree.name.text.rpartition(".")[2] not in _TENSORS:
        return False
    return bool(tree.arguments) and isinstance(tree.arguments[0].value, Items)


def list_of_tensor(tree: Tree) -> Tree:
    """Return the list of `torch.tensor([0, 2])`; other expressions unchanged."""
    if not isinstance(tree, CallTree) or not is_tensor_of_list(tree):
        return tree
    return tree.arguments[0].value


_PYTHON_TYPES = {"float": "f64", "int": "i64"}
"""Python's types, as PyTorch and NumPy take them."""


def _of_python(argument: Argument, function: str, place: int) -> Argument:
    """Return a Python type as the corresponding dtype; other arguments unchanged."""
    word, value = argument.keyword.text if argument.keyword else "", argument.value
    is_dtype = word == "dtype" or (function in ("to", "type", "astype") and place == 1)
    if not is_dtype or not isinstance(value, Name) or value.text not in _PYTHON_TYPES:
        return argument
    return replace(argument, value=replace(value, text=_PYTHON_TYPES[value.text]))


def _is_flag(argument: Argument) -> bool:
    """Return whether an argument of `to` only controls how elements are copied."""
    word = argument.keyword.text if argument.keyword else ""
    return word in ("non_blocking", "copy", "memory_format")
