"""Errors for calls by the names of other frameworks, with what to write instead."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from itertools import permutations

from fusec.codes.calls import RESULT_COUNT, UNKNOWN_ARGUMENT
from fusec.codes.names import DTYPE_CALLED, METHOD_CALL, UNKNOWN_DTYPE
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Guess, Unsupported
from fusec.ir.dim import Dim
from fusec.ir.dtype import find as find_dtype
from fusec.ir.dtype import known as known_dtype
from fusec.ir.graph import Value
from fusec.ir.op import OpDef
from fusec.ops import TABLE
from fusec.ops.builder.arguments import Miscounted, parameter_called, signature
from fusec.ops.find import near_operation, not_ours
from fusec.ops.frameworks import Entry, find, method_entry
from fusec.ops.frameworks.entry import PAIRS
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.argument_order import ArgumentOrder
from fusec.parse.foreign.unknown_arguments import without_unknown
from fusec.parse.sizes import NotASize
from fusec.parse.syntax.lines import (
    ATTRIBUTES,
    Places,
    call_of,
    is_uncalled,
    line_text,
    plain_text,
    uncalled,
    with_arguments,
)
from fusec.parse.syntax.trees import (
    Argument,
    CallTree,
    Infix,
    Items,
    Literal,
    Name,
    OpLine,
    Range,
    String,
    Subscript,
    Tree,
    integer_literal,
)

_NORMS = ("layer_norm", "rms_norm")
_OF_MASKED = {
    "sum": "sum(where(m, x, 0))",
    "mean": "sum(where(m, x, 0)) / sum(count)",
    "max": "max(where(m, x, -inf))", "amax": "max(where(m, x, -inf))",
    "min": "min(where(m, x, inf))", "amin": "min(where(m, x, inf))",
    "prod": "prod(where(m, x, 1))",
}  # fmt: skip
"""Reductions over the elements `x` that a mask `m` selects; `count` is their number."""


class ForeignCalls(ArgumentOrder):
    """Suggests the line to write for calls that fusec lacks, or has in another form."""

    def unquoted(self, tree: String, error: FusecError) -> FusecError:
        """Return the error for a string used as a value, suggesting the line without quotes."""
        why = "dtypes and names are not quoted"
        return self.with_part(tree, Name(tree.text, tree.start, tree.end), error, why)

    def named(self, tree: CallTree, error: FusecError) -> FusecError:
        """Return the error for a call with unnamed results, suggesting the line that names them."""
        if not isinstance(error, Miscounted) or self.line is None or self.line.tree is not tree:
            return error
        unused = Name("_", tree.start, tree.start)
        given = {name.text: name for name in self.line.names}
        names = [given.get(name, unused) for name in error.known]  # `mean` is the mean, wherever
        if not names or all(name is unused for name in names):
            names = list(self.line.names[: error.results])
            names += [unused] * (error.results - len(names))
        help = error.diagnostic.help
        line = replace(self.line, names=tuple(names))
        told = f"write {line_text(line)}" + (f"; {help}" if help else "")
        if tree.name.text == "chunk" and len(self.line.names) > error.results:
            return self._in_more_chunks(tree, error, told)
        parts = self._unbound(tree, error)
        if parts is not None:
            why = f"the parts along dim 0: write {line_text(parts)}"
            return error.changed(help=why, guess=Guess(parts, told))
        return error.changed(help=told, guess=Guess(line, help))

    def _unbound(self, tree: CallTree, error: Miscounted) -> OpLine | None:
        """Return `a, b = permute(...)` unbound along dim 0, if it has as many names as elements."""
        assert self.line is not None
        ours = replace(self.line, names=self.line.names[:1])
        type = self._type_of(ours.tree) if error.results == 1 else None
        if type is None or not type.shape or type.shape[0] != len(self.line.names):
            return None
        name = Name("unbind", tree.start, tree.start)
        arguments = (self._rewritten(tree, {}), Literal(0, tree.start, tree.start))
        call = CallTree(name, tuple(Argument(None, a) for a in arguments), tree.start, tree.end)
        return replace(self.line, tree=call)

    def _in_more_chunks(self, tree: CallTree, error: FusecError, rule: str) -> FusecError:
        """Return the error of `a, b, c = chunk(x, 2)`, suggesting three chunks, or the rule."""
        assert self.line is not None
        wanted = Literal(len(self.line.names), tree.start, tree.start)
        made = [
            replace(a, value=wanted)
            if (a.keyword.text == "chunks" if a.keyword else place == 1)
            else a
            for place, a in enumerate(tree.arguments)
        ]
        line = replace(self.line, tree=replace(tree, arguments=tuple(made)))
        return error.changed(help=f"write {line_text(line)}", guess=Guess(line, rule))

    def of_pair(self, tree: CallTree, op: OpDef) -> FusecError:
        """Return the error for the two results that PyTorch's `max` and `min` have along a dim."""
        places = PAIRS[op.name][1]
        assert self.line is not None
        first, second = self.line.names
        lines: list[str] = []
        for name, word in ((first, op.name), (second, places)):
            if name.text != "_":
                call = replace(tree, name=Name(word, tree.start, tree.start))
                lines.append(line_text(OpLine((name,), self._rewritten(call, {}))))
        return FusecError(
            f"`{op.name}` returns 1 value, but the line assigns 2",
            help=f"`{places}` returns the indices: write {' and '.join(lines)}",
            code=RESULT_COUNT,
        )

    def on_its_own_line(self, tree: CallTree, count: int) -> str:
        """Return how to write a call with several results if a line uses one of them."""
        return f"write {self._in_two_lines(tree, tree, count)}"

    def unknown(self, tree: CallTree, error: FusecError) -> FusecError:
        """Return the error for a name that is not an operation, with the line to write instead."""
        name = tree.name.text
        dtype = known_dtype(name)
        if dtype is not None:
            help = f"to convert a tensor write `cast(x, {dtype})`"
            return FusecError(
                f"`{name}` is a dtype, not an operation", help=help, code=DTYPE_CALLED
            )
        if name.startswith("self."):
            return self.of_layer(tree, error)
        entry, called = self._looked_up(tree)
        if called is not tree or name.startswith("."):
            return self._method(entry, tree, called)
        if entry is None:
            return error
        names = () if self.line is None or self.line.tree is not tree else self.line.names
        if entry.name in PAIRS and len(names) == 2 and len(tree.arguments) > 1:
            return self.of_pair(tree, TABLE[entry.name])
        return self._misfit(entry, called) or not_ours(
            name, entry, self._written(entry, tree, called)
        )

    def _misfit(self, entry: Entry, called: CallTree) -> FusecError | None:
        """Return the error for a call without an equivalent for these arguments."""
        if entry.kind == "other":
            try:
                self._in_our_words(entry, called)
            except Unsupported as error:
                return error
            except FusecError:
                return None
        return None

    def _method(self, entry: Entry | None, tree: CallTree, called: CallTree) -> FusecError:
        if is_uncalled(tree):
            return uncalled(tree.name.text)
        name = tree.name.text.rpartition(".")[2]
        names = () if self.line is None or self.line.tree is not tree else self.line.names
        if name in PAIRS and len(names) == 2:
            return self.of_pair(called, TABLE[name])
        message = f"`{tree.name.text}` is not a method that op lines have"
        if entry is None:
            help = "operations are called with operands, as in `relu(x)`"
            owner, _, name = tree.name.text.rpartition(".")
            near = near_operation(name, len(called.arguments))
            with contextlib.suppress(FusecError):
                made = (
                    called.arguments[0],
                    Argument(None, replace(tree.name, text=str(find_dtype(name)))),
                )
                cast = CallTree(replace(tree.name, text="cast"), made, tree.start, tree.end)
                return FusecError(
                    message, help=f"write {self._whole(tree, cast)}", code=METHOD_CALL
                )
            help = f"did you mean `{owner}.{near}`?" if near else help
            return FusecError(message, help=help, code=METHOD_CALL)
        misfit = self._misfit(entry, called)
        if misfit is not None:
            return misfit
        written = self._written(entry, tree, called)
        if entry.kind == "unsupported":
            return not_ours(tree.name.text, entry, written)
        help = f"write {written}" if written else f"the form is `{entry.expressions[0]}`"
        help += f"; {entry.caveat}" if entry.note else ""
        return FusecError(message, help=help, code=METHOD_CALL)

    def attribute(self, tree: Name, owner: str, name: str) -> FusecError:
        """Return the error for `x.T`, with what to write."""
        entry = find("torch.Tensor", name)
        help = "operations are called with operands, as in `relu(x)`"
        if name in ("values", "indices"):
            help = "name both results in the line that makes them: `values, indices = topk(x, k)`"
            message = f"op lines have no attributes: `{tree.text}`"
            return FusecError(message, span=self._span(tree), help=help, code=METHOD_CALL)
        method = method_entry(name)
        if method is not None and method.kind == "unsupported" and not method.expressions:
            return not_ours(tree.text, method).at(self._span(tree))
        if method is not None and name not in ATTRIBUTES:
            return uncalled(tree.text).at(self._span(tree))
        if entry is not None:
            help = entry.note
        if entry is not None and entry.expressions:
            text = self._whole(tree, self._without_attribute(tree, accepted_only=False))
            help = f"write {text}" + (f"; {entry.caveat}" if entry.note else "")
        message = f"op lines have no attributes: `{tree.text}`"
        return FusecError(message, span=self._span(tree), help=help, code=METHOD_CALL)

    def reordered(self, op: OpDef, tree: CallTree, error: FusecError) -> FusecError:
        """Return the error with a suggested line, if the call has PyTorch's arguments."""
        entry, told = find("torch", op.name), error.diagnostic
        called = tree
        if error.code is UNKNOWN_ARGUMENT:
            called, error = without_unknown(op, entry, tree, error)
        if isinstance(error, NotASize) and op.name in _NORMS:
            return self._with_last_dim(tree, error)
        if entry is not None and entry.kind == "same" and error.code is UNKNOWN_ARGUMENT:
            return self._with_argument(entry, tree, called, error)
        nested = error.operation not in ("", op.name) or self._is_of_argument(tree, error)
        if entry is None or entry.kind != "other" or nested:
            return error
        unaligned = isinstance(error, NotASize) or error.code is UNKNOWN_DTYPE
        if not unaligned and told.help not in (None, signature(op)):
            return error
        first = entry.expressions[0].partition("(")[0]
        words = {a.keyword.text for a in tree.arguments if a.keyword is not None}
        known = {p.name for p in op.params}
        if first != op.name and all(parameter_called(op, word) in known for word in words):
            return error  # the call has nothing specific to PyTorch
        written = self._written(entry, tree, called)
        if written is None or plain_text(tree) in written:
            return error
        help = f"if you mean {entry.title}, write {written}"
        try:
            line = self._line_with(tree, self._in_our_words(entry, called))
        except FusecError:
            return error
        return error.changed(help=help, guess=Guess(line, told.help))

    def _is_of_argument(self, tree: CallTree, error: FusecError) -> bool:
        """Return whether an error is in a call that is an argument of another one."""
        at = error.diagnostic.span
        inner = [self._span(c) for a in tree.arguments for c in frameworks.calls_in(a.value)]
        return at is not None and any(
            s.line == at.line and s.column <= at.column < s.column + s.width for s in inner
        )

    def _with_last_dim(self, tree: CallTree, error: FusecError) -> FusecError:
        """Return the error for a norm without `normalized_shape`, suggesting a line with it."""
        type = self._type_of(tree.arguments[0].value)
        if type is None or not type.shape:
            return error
        at = tree.start
        last = Items((frameworks.size_tree(type.shape[-1], tree),), at, at)
        arguments = (tree.arguments[0], Argument(None, last), *tree.arguments[1:])
        made = replace(tree, arguments=arguments)
        return self.with_part(tree, made, error, "the normalized shape comes second")

    def _with_argument(
        self, entry: Entry, tree: CallTree, called: CallTree, error: FusecError
    ) -> FusecError:
        """Return the error for an argument of PyTorch's operation, given those of `called`."""
        try:
            made = self._in_our_words(entry, called)
        except FusecError:
            return error
        return self.with_part(tree, made, error, "")

    def mended(
        self, tree: Tree, op: OpDef, given: Mapping[str, Tree], error: FusecError
    ) -> FusecError:
        """Return the error of a call with the corrected line, if the correct call is known.

        given: the arguments by the names of the operation's parameters.
        """
        parts = integer_literal(given.get("split_size"))
        named = self.line is not None and self.line.tree is tree and len(self.line.names) == parts
        if op.name == "split" and named and isinstance(tree, CallTree):
            made = replace(tree, name=replace(tree.name, text="chunk"))
            why = "`split` takes the size of a part, `chunk` the number of parts"
            return self.with_part(tree, made, error, why)
        instead = error.instead
        if instead is None or error.operation != op.name:
            return error
        if isinstance(tree, Infix) and tree.operator == "^" and "**" in instead.text:
            return error.changed(help=instead.help(f"`{self._as_power(tree)}`"))
        trees = {f"_{name}_": part for name, part in given.items()}
        for name, part in given.items():
            for k, item in enumerate(part.items if isinstance(part, Items) else ()):
                trees[f"_{name}_{k}_"] = item
        places = Places()

        def of(text: str) -> Tree:
            parsed = frameworks.parsed(text.format_map(places))
            return frameworks.substituted(parsed, trees, tree)

        made = of(instead.text) if instead.text else None
        if made is None:
            changed = {**given, **{name: of(text) for name, text in instead.arguments.items()}}
            is_call = isinstance(tree, CallTree)
            made = (
                with_arguments(tree, op, changed)
                if is_call
                else frameworks.rebuilt(tree, [changed[name] for name in given])
            )
        line = self._line_with(tree, made)
        guess = Guess(line, instead.rule, instead.declares)
        return error.changed(help=instead.help(self._lines_text(line)), guess=guess)

    def _as_power(self, tree: Infix) -> str:
        """Return the line with `**` for a `^`, with the precedence of a power."""
        text, place = self._source.text, tree.place
        start = tree.start if self.line is None else self.line.names[0].start
        end = tree.end if self.line is None else self.line.tree.end
        rest = text[place + 1 : max(end, tree.end)].partition("\n")[0]
        return f"{text[start:place]}**{rest}"

    def masked(self, tree: Subscript, lacking: int, rank: int, error: FusecError) -> FusecError:
        """Return the error of a mask as an index, suggesting a line that keeps the shape.

        The value for masked elements depends on the reduction: 0 for a sum. rank: of the mask, and
        lacking: the number of additional dims of the tensor.
        """
        mask, at = tree.keys[0], tree.start
        wide = mask
        if lacking:
            whole = [Range(None, None, None, at, at)] * rank
            wide = Subscript(mask, (*whole, *[Literal(None, at, at)] * lacking), at, tree.end)
        user = None if self.line is None else call_of(self.line.tree, tree)
        name = "" if user is None else user.name.text.rpartition(".")[2]
        alone = user is not None and len(user.arguments) == 1
        given = {"m": wide, "x": tree.base, "count": mask}
        form = _OF_MASKED.get(name) if alone else None
        if alone and name == "mean" and lacking:
            form = None  # the mask counts rows
        why = "a mask selects no elements"
        if user is not None and form is None and name in TABLE:
            help = f"{why}: the shape of `x[mask]` depends on the data; `where(mask, x, value)` "
            return error.changed(help=f"{help}keeps the shape")
        form = form or "where(m, x, 0)"
        part = tree if user is None or name not in _OF_MASKED else user
        made = frameworks.substituted(frameworks.parsed(form), given, tree)
        why += ": `where` has 0 instead of the others" if part is tree else ""
        return self.with_part(part, made, error, why)

    def with_dims(self, error: FusecError, hints: Mapping[str, int]) -> FusecError:
        """Return an error for operands that do not broadcast, suggesting dims instead of numbers.

        hints: the default sizes, at which a number equals the size in its position.
        """
        found = _number_of_size(error, hints)
        if found is None or self.line is None:
            return error
        number, size, text = found
        tree = _with_size(self.line.tree, number, frameworks.parsed(text))
        if tree == self.line.tree:
            return error
        line = replace(self.line, tree=tree)
        why = f"{number} equals {size} only at the default sizes"
        help = f"{why}: write {self._lines_text(line)}"
        return error.changed(help=help, guess=Guess(line, error.diagnostic.help))


def _number_of_size(error: FusecError, hints: Mapping[str, int]) -> tuple[int, Dim, str] | None:
    """Return a number, the size it differs from, and a size that it may be meant to be."""
    values = [v for v in error.given.values() if isinstance(v, Value) and v.type.shape]
    for left, right in permutations(values, 2):
        for axis in range(-min(left.rank, right.rank), 0):
            number, size = left.shape[axis], right.shape[axis]
            known = number.is_const and number != 1 and not size.is_const
            if not known or size.evaluate(hints) != number.value:
                continue
            if str(size) in hints:
                return number.value, size, str(size)
            for name in sorted(size.symbols & hints.keys()):
                if hints[name] % number.value == 0:
                    return number.value, size, f"{name} // {hints[name] // number.value}"
    return None


def _with_size(tree: Tree, number: int, size: Tree) -> Tree:
    """Return an expression with a size for each literal of a number."""
    if isinstance(tree, Literal) and integer_literal(tree) == number:
        return frameworks.substituted(size, {}, tree)
    parts = [_with_size(part, number, size) for part in frameworks.parts_of(tree)]
    return frameworks.rebuilt(tree, parts)
