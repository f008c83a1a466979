"""Python expressions of PyTorch programs in op lines: shapes, types and constants for fusec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from fusec.codes.shapes import AXIS_RANGE
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Span
from fusec.ir.dim import Dim
from fusec.ir.dtype import DTYPES
from fusec.ir.graph import Type, Value
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.constants import CONSTANTS, MODULES, dtype_called, folded, number_said
from fusec.parse.foreign.elements import updated
from fusec.parse.foreign.extents import listed_sizes
from fusec.parse.foreign.lists import folded_list
from fusec.parse.foreign.modules import Modules
from fusec.parse.foreign.python_calls import JOINING, PythonCalls, is_tensor_of_list, list_of_tensor
from fusec.parse.foreign.repeated import is_comprehension, repeated
from fusec.parse.foreign.uses import receiver_of, with_receiver
from fusec.parse.scope import Scope
from fusec.parse.syntax.expressions import ASSIGNED, CALLED
from fusec.parse.syntax.trees import (
    Argument,
    CallTree,
    Items,
    Literal,
    Name,
    OpLine,
    Range,
    Subscript,
    Tree,
    integer_literal,
)


class Pasted(PythonCalls):
    """Replaces Python expressions evaluated before a kernel runs by sizes, types and numbers."""

    def __init__(
        self,
        scope: Scope,
        span: Callable[[Tree], Span],
        inputs: Sequence[Value],
        hints: Callable[[], Mapping[str, int]],
        inferred: Callable[[Tree], Type | None],
    ) -> None:
        """Look up types of values in `scope`, and locations of expressions with `span`.

        hints: returns the default sizes of dims. inferred: returns the type of an expression, None
        if it is unknown.
        """
        super().__init__(scope, span, inferred)
        self._modules = Modules(self._value, self._type_of, span, inputs, hints)
        self.unknown = []
        self._undeclared: list[str] = []
        self.first: Tree | None = None
        """The first rewritten part that op lines do not support, since this was last reset to
        None."""
        self.static: dict[str, Tree] = {}
        """Replacements for names of the file that are not values: types and sizes."""
        self.renamed: dict[str, Name] = {}
        """Replacements for names to which earlier lines gave other values."""

    def of(self, tree: Tree) -> Tree:
        """Return an expression without Python's parts; unknown parts are unchanged."""
        if isinstance(tree, Name) and tree.text in self.static:
            self._note(tree)
            return frameworks.substituted(self.static[tree.text], {}, tree)
        if isinstance(tree, Name):
            tree = self.renaming(tree)
        if isinstance(tree, CallTree) and "." in tree.name.text:
            tree = replace(tree, name=self.renaming(tree.name))
        if isinstance(tree, CallTree) and tree.name.text == "range":
            tree = replace(tree, name=replace(tree.name, text="arange"))
        accepted = self._accepted(tree)
        if accepted is not None:
            return accepted
        before = self.first
        found = self._rewritten(tree)
        if found is not None:
            self.first = before
            if _is_read(tree):
                return self.of(found)
            self._note(tree)
            return self.quietly(found)
        parts = [self.of(part) for part in frameworks.parts_of(tree)]
        return folded(folded_list(frameworks.rebuilt(tree, parts)))

    def _note(self, tree: Tree) -> None:
        if self.first is None or tree.start < self.first.start:
            self.first = tree

    def quietly(self, tree: Tree) -> Tree:
        """Return an expression rewritten, without recording its first rewritten part."""
        noted, self.first = self.first, None
        done = self.of(tree)
        self.first = noted
        return done

    def renaming(self, name: Name) -> Name:
        """Return a name as written below lines that give it another value."""
        owner, dot, rest = name.text.partition(".")
        known = self.renamed.get(owner)
        return name if known is None else replace(name, text=known.text + dot + rest)

    def layer(self, tree: CallTree) -> Tree:
        """Return a call of a module as one of its function, using only the file's inputs."""
        return self._modules.call(tree, declares=False)

    @property
    def missing(self) -> Sequence[str]:
        """Return further requirements of the last line: inputs to declare, and numbers."""
        wrong = [*self._modules.missing, *dict.fromkeys(self.unknown)]
        for section, is_size in (("inputs", False), ("dims", True)):
            names = [n for n in self._undeclared if bool(re.fullmatch(_SIZES, n)) is is_size]
            entries = [f"`{n}: f32 = 1e-5`" if "eps" in n else f"`{n}`" for n in names]
            if entries:
                wrong.append(f"declare {' and '.join(entries)} under `{section}:`")
        return wrong

    def line(self, line: OpLine) -> OpLine:
        """Return a line without Python's parts; one result of several is named by its position."""
        self.first = None
        self._modules.begin()
        self.unknown, self._undeclared = [], []
        tree = self.of(line.tree)
        if isinstance(tree, Subscript) and isinstance(tree.base, CallTree) and len(tree.keys) == 1:
            key, count = tree.keys[0], self.count_of(tree.base)
            if count > 1 and isinstance(key, Literal) and len(line.names) == 1:
                at = key.value if isinstance(key.value, int) else count
                if -count <= at < count:
                    unused = Name("_", line.names[0].start, line.names[0].start)
                    names = [unused] * count
                    names[at] = line.names[0]
                    return replace(line, names=tuple(names), tree=tree.base)
        listed = isinstance(tree, Items) and tree is not line.tree
        if listed and isinstance(tree, Items) and len(tree.items) != len(line.names):
            self._note(line.tree)  # a shape is not a value
        if isinstance(tree, Name) and tree.text in DTYPES:
            self._note(line.tree)  # a dtype is not a value that the line could name
        elif isinstance(tree, Name) and self._is_copied(tree, line):
            name = Name("set", tree.start, tree.start)
            tree = CallTree(name, (Argument(None, tree),), tree.start, tree.end)
        return replace(line, tree=tree)

    def _is_copied(self, tree: Name, line: OpLine) -> bool:
        """Return whether a line in another framework's terms gives a value another name."""
        known = self._value(tree) is not None
        return known and (tree is not line.tree or line.wrong is not None)

    def _accepted(self, tree: Tree) -> Tree | None:
        """Return constants and types that op lines accept as Python names them; None for others."""
        if isinstance(tree, CallTree):
            return number_said(tree)
        if not isinstance(tree, Name):
            return None
        owner, _, name = tree.text.rpartition(".")
        value = self._value(owner)
        if value is not None:
            return replace(tree, text=value.type.dtype.name) if name == "dtype" else None
        if owner not in MODULES or self._scope.knows(owner):
            return None
        if name in CONSTANTS:
            return Literal(CONSTANTS[name], tree.start, tree.end)
        dtype = dtype_called(name)
        return None if dtype is None else replace(tree, text=dtype.name)

    def _rewritten(self, tree: Tree) -> Tree | None:
        if isinstance(tree, Items) and is_comprehension(tree):
            return repeated(tree, self._span)
        if isinstance(tree, CallTree) and tree.name.text == ASSIGNED:
            return updated(tree, self._type_of, self._span)
        if isinstance(tree, CallTree) and tree.name.text == CALLED:
            return self._modules.call(tree)
        if isinstance(tree, CallTree) and tree.name.text in (".shape", ".ndim", ".dtype"):
            base = tree.arguments[0].value
            type = self._type_of(base) if len(tree.arguments) == 1 else None
            return None if type is None else _of_type(tree.name.text[1:], type, tree)
        if isinstance(tree, Name):
            return self._attribute(tree)
        if isinstance(tree, Subscript):
            return self._part(tree)
        return self._call(tree) if isinstance(tree, CallTree) else None

    def _of_self(self, tree: Name) -> Tree | None:
        """Return `self.gamma` as `gamma`, an input; None for other names and for modes."""
        owner, _, rest = tree.text.partition(".")
        if owner != "self" or not rest or self._scope.knows("self") or rest == "training":
            return None
        words = rest.split(".")
        kept = next((k for k, w in enumerate(words) if k and w in _OF_TENSORS), len(words))
        name = "_".join(words[max(0, kept - 2) : kept] if words[kept - 1] in _WEIGHTS
                        else words[kept - 1 : kept])  # fmt: skip
        if not self._scope.knows(name) and name not in self._undeclared:
            self._undeclared.append(name)
        return replace(tree, text=".".join([name, *words[kept:]]))

    def _attribute(self, tree: Name) -> Tree | None:
        own = self._of_self(tree)
        if own is not None:
            return own
        owner, _, name = tree.text.rpartition(".")
        value = self._value(owner)
        if value is not None and name == "weight":
            return replace(tree, text=owner, end=tree.end)  # a table or matrix, not a module
        return None if value is None else _of_type(name, value.type, tree)

    def _part(self, tree: Subscript) -> Tree | None:
        """Return an entry of a shape, or one of the results of `max` and `min` along a dim."""
        base, key = tree.base, tree.keys[0]
        if any(is_tensor_of_list(k) for k in tree.keys):
            return replace(tree, keys=tuple(map(list_of_tensor, tree.keys)))
        if len(tree.keys) > 1:
            return None
        row = _row(base, key)
        if row is not None:
            return row
        if isinstance(base, CallTree) and isinstance(key, Literal) and key.value in (0, 1):
            return self._result(base, int(key.value or 0))
        shape = self._shape_said(base)
        if shape is None:
            return None
        key = self.quietly(key)
        if isinstance(key, Range):
            bounds = [integer_literal(b) for b in (key.low, key.high, key.step)]
            given = [b for b in (key.low, key.high, key.step) if b is not None]
            if sum(b is not None for b in bounds) == len(given):
                return listed_sizes(shape[slice(*bounds)], tree)
        at = integer_literal(key)
        known = at is not None and -len(shape) <= at < len(shape)
        if at is not None and not known:
            owner = base.text if isinstance(base, Name) else "x.shape"
            named = ", ".join(f"`{owner}[{k}]` is {size}" for k, size in enumerate(shape))
            raise FusecError(
                f"`{owner}[{at}]` of a tensor of {len(shape)} dims",
                help=f"dims are numbered from 0: {named}" if shape else None,
                span=self._span(tree),
                code=AXIS_RANGE,
            )
        return frameworks.size_tree(shape[at], tree) if known and at is not None else None

    def _shape_said(self, tree: Tree) -> list[Dim] | None:
        """Return the shape given by `x.shape` and `x.size()`."""
        if isinstance(tree, Name) and tree.text.endswith(".shape"):
            return self._shape(tree.text.removesuffix(".shape"))
        if isinstance(tree, CallTree) and tree.name.text == ".shape":
            return self._shape(tree.arguments[0].value)
        if isinstance(tree, CallTree) and tree.name.text.endswith(".size"):
            receiver = receiver_of(tree)
            alone = len(with_receiver(tree)) == 1
            return self._shape(receiver) if alone and receiver is not None else None
        return None


def _of_type(name: str, type: Type, at: Tree) -> Tree | None:
    """Return the attribute `shape`, `ndim` or `dtype` of a tensor."""
    shape = type.shape or ()
    if name == "shape":
        return listed_sizes(shape, at)
    if name == "dtype":
        return Name(type.dtype.name, at.start, at.end)
    return Literal(len(shape), at.start, at.end) if name == "ndim" else None


_WEIGHTS = ("weight", "bias")
_SIZES = r"num_\w+|n|n_\w+|\w*(dim|size|heads|length|groups|features|channels)"
"""Typical names of sizes in modules."""
_OF_TENSORS = frozenset({"T", "mT", "H", "mH", "shape", "ndim", "dtype", "data", "device"})
"""Attributes of tensors, which are not part of the name of one."""
_REPORTED_CALLS = frozenset({ASSIGNED, CALLED, "cpu", "numpy", *JOINING})
"""Calls that change the type or location of a value: these are reported, not translated."""


def _is_read(tree: Tree) -> bool:
    """Return whether a Python expression is translated to an equal one.

    Others are reported, since the meaning of a module, an attribute or a mode is not in the file.
    """
    if isinstance(tree, Name):
        return not tree.text.endswith(".weight") and not tree.text.startswith("self.")
    if not isinstance(tree, CallTree):
        return True
    words = [a.value.text for a in tree.arguments if isinstance(a.value, Name)]
    of_mode = any(word.endswith(".training") or word.startswith("self.") for word in words)
    return not of_mode and tree.name.text.rpartition(".")[2] not in _REPORTED_CALLS


def _row(base: Tree, key: Tree) -> Tree | None:
    """Return `x.unbind(1)[0]` as `select(x, 0, 1)`; None for other subscripts."""
    if not isinstance(base, CallTree) or base.name.text.rpartition(".")[2] != "unbind":
        return None
    x, *rest = (a.value for a in with_receiver(base))
    axis = 0 if not rest else integer_literal(rest[0])
    if integer_literal(key) is None or axis is None:
        return None
    return frameworks.substituted(
        frameworks.parsed(f"select(x, key, {axis})"), {"x": x, "key": key}, base
    )
