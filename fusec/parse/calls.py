"""Op lines bound to the operation table and passed to the graph builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusec import ops
from fusec.codes.calls import (
    ARGUMENT_KIND,
    ARGUMENT_TWICE,
    LIST_FOR_TENSOR,
    MISSING_ARGUMENT,
    NESTED_RESULTS,
    NOT_A_LIST,
    POSITIONAL_AFTER_KEYWORD,
    RESULT_COUNT,
    TOO_MANY_ARGUMENTS,
    UNKNOWN_ARGUMENT,
)
from fusec.codes.document import UNEXPECTED_TOKEN
from fusec.codes.names import DTYPE_CALLED, UNDEFINED_NAME
from fusec.codes.shapes import NEEDS_INTEGERS
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Span, Unsupported
from fusec.ir import dtype as dtypes
from fusec.ir.dim import Dim, Shape, mod
from fusec.ir.dtype import BOOL, DTYPES, DType
from fusec.ir.graph import Const, Operand, Type, Value
from fusec.ir.op import REQUIRED, OpDef, Param
from fusec.ops.builder.arguments import (
    LISTS,
    Miscounted,
    bind,
    near_argument,
    parameter_called,
    signature,
)
from fusec.ops.builder.build import GraphBuilder
from fusec.ops.builder.size_operands import operand_of_size
from fusec.ops.frameworks.entry import IGNORED, PAIRS
from fusec.ops.frameworks.find import PREFIXES
from fusec.ops.literals import literal
from fusec.ops.names import UNUSED
from fusec.ops.shapes import Unequal
from fusec.parse.arithmetic import folded, operation_of
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.extents import listed_sizes
from fusec.parse.foreign.our_words import OurWords
from fusec.parse.numbers import complex_number, typed_number
from fusec.parse.scope import Scope
from fusec.parse.sizes import Sizes, check_terms
from fusec.parse.source import Source
from fusec.parse.subscripts import steps_of
from fusec.parse.syntax.lines import OF_LISTS, plain_text
from fusec.parse.syntax.operators import COMPARISONS, NEEDING_INTEGERS
from fusec.parse.syntax.trees import (
    Argument,
    CallTree,
    Dots,
    Infix,
    Items,
    Literal,
    Name,
    OpLine,
    Prefix,
    Range,
    String,
    Subscript,
    Tree,
    integer_literal,
)
from fusec.parse.taken import as_calls, is_counted
from fusec.parse.weights import check_weight

_FALSE = frozenset({"no", "false", "off", "0", "n", "f", ""})
"""Words for a bool that is false, as strings."""
_SIZE_KINDS = ("shape", "size", "ints", "dims", "axis", "int")


class Calls:
    """Turns the trees of op lines into nodes."""

    def __init__(self, source: Source, builder: GraphBuilder, scope: Scope) -> None:
        """Bind trees of `source` to names of `scope`."""
        self._source, self._builder, self._scope = source, builder, scope
        self.sizes = Sizes(source, builder, scope, self._nested)
        self.inputs: list[Value] = []
        self.words = OurWords(source, scope, self.inputs, lambda: builder.hints, self._type_of)

    def line(self, line: OpLine, labels: Callable[[], list[str]]) -> Sequence[Operand | Dim]:
        """Return the values of an op line: results under the names of `labels`, sizes or numbers.

        labels: called if the line computes values, so that sizes and numbers take no names.
        """
        tree = self.words.read(line)
        try:
            return self._line(line, tree, labels)
        except FusecError as error:
            span, divided = error.diagnostic.span, error.code is UNDEFINED_NAME
            if divided and any(self._span(part) == span for part in _divisors(tree)):
                help = "`//` divides, and a comment begins with `#`"
                raise error.changed(help=help) from None
            raise

    def _line(
        self, line: OpLine, tree: Tree, labels: Callable[[], list[str]]
    ) -> Sequence[Operand | Dim]:
        if isinstance(tree, CallTree) and not self.sizes.is_function(tree):
            return self._call(tree, labels())
        if isinstance(tree, Items) and len(tree.items) == len(line.names):
            return [self.sizes.of(item) for item in tree.items]
        is_size = not isinstance(tree, CallTree) and self.sizes.is_size(tree)
        if len(line.names) > 1:
            what = "size" if is_size else "result"
            message = f"one {what}, and {len(line.names)} names"
            raise FusecError(message, span=self._span(tree))
        if is_size or isinstance(tree, CallTree):
            return [self.sizes.of(tree)]
        if isinstance(tree, (Literal, Name)):
            return [self._value(tree)]
        if isinstance(tree, Subscript):
            return [self._subscript(tree, labels())]
        if not isinstance(tree, (Infix, Prefix)):
            raise FusecError("expected a value", span=self._span(tree))
        return [self._expression(tree, labels)]

    def says_nothing(self, line: OpLine) -> bool:
        """Return whether a line only gives sizes the names that they already have."""
        trees = line.tree.items if isinstance(line.tree, Items) else (line.tree,)
        pairs = [*zip(line.names, trees, strict=False)]
        named = [(n, t) for n, t in pairs if n.text != UNUSED]
        return (
            bool(named)
            and len(trees) == len(line.names)
            and all(
                isinstance(t, Name) and t.text == n.text and self._scope.is_dim(n.text)
                for n, t in named
            )
        )

    def _type_of(self, tree: Tree) -> Type | None:
        """Return the type of an expression without adding it to the graph; None if it is wrong."""
        found: list[Type] = []
        self._builder.works(lambda: found.append(self._builder.resolve(self._value(tree)).type))
        return found[0] if found else None

    def _span(self, tree: Tree | Name) -> Span:
        return self._source.span(tree.start, tree.end)

    def _call(self, tree: CallTree, names: Sequence[str] | None) -> tuple[Operand, ...]:
        span, name = self._span(tree), tree.name.text
        try:
            op = ops.find_op(name, count=len(tree.arguments))
        except FusecError as error:
            raise self.words.unknown(tree, error).at(self._span(tree.name)) from None
        tree = self.words.in_our_order(op, tree)
        op = ops.TABLE[tree.name.text] if tree.name.text != op.name else op
        try:
            given = self._bind(op, tree)
            operands, attributes = self._arguments(op, given, tree)
        except FusecError as error:
            if error.code is DTYPE_CALLED and op.name == "cast" and len(tree.arguments) == 2:
                made = replace(tree, arguments=tree.arguments[::-1])
                raise self.words.with_part(tree, made, error, "the tensor comes first") from None
            raise self.words.reordered(op, tree, error) from None
        if op.name in PAIRS and names is not None and len(names) == 2:
            raise self.words.of_pair(tree, op).at(span)
        # The results of a composite are known after it is expanded.
        if op.family != "composite" and names is not None and len(names) != len(op.results):
            count = len(op.results)
            error = Miscounted(
                f"`{op.name}` returns {count} value{'s' * (count > 1)}, "
                f"but the line assigns {len(names)}",
                span=span,
                help=f"the results are {', '.join(op.results)}" if count > 1 else None,
                code=RESULT_COUNT,
            )
            error.results, error.known = count, tuple(op.results) if count > 1 else ()
            raise self.words.named(tree, error)
        try:
            check_weight(op, operands)
            results = self._builder.call(
                op.name, operands, attributes, names=names, span=span,
                place=lambda about: self._argument_span(op, given, about),
            )  # fmt: skip
        except FusecError as error:
            error = self._with_dims(self.words.mended(tree, op, given, error))
            raise self.words.named(tree, error).at(span) from None
        for result in results:
            check_terms((*result.shape, *filter(None, [result.type.dim])), span)
        return results

    def _arguments(
        self, op: OpDef, given: Mapping[str, Tree], tree: CallTree
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the operands and attributes of a call, as GraphBuilder.call takes them."""
        operands: list[Any] = []
        attributes: dict[str, Any] = {}
        for param in op.params:
            if param.name not in given:
                if param.default is REQUIRED:
                    raise self._missing(op, param, tree)
                if param.is_operand:
                    operands.append(None)
            elif param.is_operand:
                operands.append(self._operand(given[param.name], op, param))
            else:
                attributes[param.name] = self._attribute(given[param.name], op, param)
        return operands, attributes

    def _missing(self, op: OpDef, param: Param, tree: CallTree) -> FusecError:
        """Return the error for a missing argument; for a dim, the last one may be suggested."""
        error = FusecError(
            f"`{op.name}` needs `{param.name}`",
            span=self._span(tree),
            help=signature(op),
            code=MISSING_ARGUMENT,
        )
        theirs = self.words.reordered(op, tree, error)
        if theirs is not error:
            return theirs
        if param.kind != "axis":
            return self.words.with_size(tree, tree, op, error)
        word = Name(param.name, tree.start, tree.start)
        last = Argument(word, Literal(-1, tree.start, tree.start))
        made = replace(tree, arguments=(*tree.arguments, last))
        return self.words.with_part(tree, made, error, "for the last dim", signature(op))

    def _argument_span(self, op: OpDef, given: Mapping[str, Tree], about: str) -> Span | None:
        """Return the location of the argument of a kind; None if the call has none or several."""
        kinds = ("dims", "axis") if about == "axis" else (about,)
        found = [given[p.name] for p in op.params if p.kind in kinds and p.name in given]
        return self._span(found[0]) if len(found) == 1 else None

    def _bind(self, op: OpDef, tree: CallTree) -> dict[str, Tree]:
        given: dict[str, Tree] = {}
        keyword_seen = False
        for position, argument in enumerate(_listed(op, tree.arguments)):
            name = self._parameter(op, tree, position, argument, keyword_seen)
            keyword_seen |= argument.keyword is not None
            if name in given:
                raise FusecError(
                    f"argument `{name}` of `{op.name}` is specified twice",
                    span=self._span(argument.keyword or argument.value),
                    help=signature(op),
                    code=ARGUMENT_TWICE,
                )
            given[name] = argument.value
        return given

    def _parameter(
        self, op: OpDef, tree: CallTree, position: int, argument: Argument, keyword_seen: bool
    ) -> str:
        names = [p.name for p in op.params]
        if argument.keyword is not None:
            name = parameter_called(op, argument.keyword.text)
            if name not in names:
                nearest = near_argument(op, name)
                error = FusecError(
                    f"`{op.name}` has no argument `{name}`",
                    span=self._span(argument.keyword),
                    help=f"did you mean `{nearest}`?" if nearest else signature(op),
                    code=UNKNOWN_ARGUMENT,
                )
                if name in IGNORED:
                    rest = tuple(a for a in tree.arguments if a is not argument)
                    why = "results have names, and all tensors are on the GPU"
                    raise self.words.with_part(tree, replace(tree, arguments=rest), error, why)
                raise error
            return name
        if keyword_seen:
            error = FusecError(
                "a positional argument follows a keyword",
                span=self._span(argument.value),
                help=signature(op),
                code=POSITIONAL_AFTER_KEYWORD,
            )
            first = sorted(tree.arguments, key=lambda a: a.keyword is not None)
            made = replace(tree, arguments=tuple(first))
            raise self.words.with_part(tree, made, error, "keywords come last")
        if position >= len(names):
            count = len(names)
            raise FusecError(
                f"`{op.name}` takes {count} argument{'s' * (count != 1)}, got {position + 1} or "
                "more",
                span=self._span(argument.value),
                help=signature(op),
                code=TOO_MANY_ARGUMENTS,
            )
        return names[position]

    # -- operands

    def _operand(self, tree: Tree, op: OpDef, param: Param) -> Any:
        if param.kind == "operands":
            if isinstance(tree, Name):
                self._named(tree)  # silent if its own line is wrong
            tree = self.words.results_of(tree) or tree
            if not isinstance(tree, Items):
                several = isinstance(tree, CallTree) and tree.name.text in OF_LISTS
                above = f"name the parts in a line above, `a, b = {plain_text(tree)}`, and "
                raise FusecError(
                    f"`{param.name}` of `{op.name}` must be a list of tensors",
                    span=self._span(tree),
                    help=f"{above if several else ''}write `{op.name}([a, b])`",
                    code=NOT_A_LIST,
                )
            return [self._single(item, op, param) for item in tree.items]
        if isinstance(tree, Literal) and tree.value is None:
            if param.kind != "optional":
                raise FusecError(
                    f"`{param.name}` of `{op.name}` cannot be none", span=self._span(tree)
                )
            return None
        return self._single(tree, op, param)

    def _single(self, tree: Tree, op: OpDef, param: Param) -> Operand:
        if isinstance(tree, Name) and tree.text in DTYPES and not self._scope.knows(tree.text):
            raise FusecError(
                f"`{tree.text}` is a dtype, not a value",
                span=self._span(tree),
                help=signature(op),
                code=DTYPE_CALLED,
            )
        if isinstance(tree, Items):
            raise FusecError(
                f"`{param.name}` of `{op.name}` must be one tensor, not a list",
                span=self._span(tree),
                help=signature(op),
                code=LIST_FOR_TENSOR,
            )
        return self._value(tree)

    def _value(self, tree: Tree) -> Operand:
        """Return the tensor, scalar or number of an expression."""
        if isinstance(tree, Items):
            raise FusecError("expected a value, found a list", span=self._span(tree))
        if isinstance(tree, String):
            raise self._quoted(tree)
        if isinstance(tree, Literal):
            if tree.value is None:
                help = "a value is never none: remove the condition, or the operand"
                raise FusecError("none is not a tensor", span=self._span(tree), help=help)
            return self._constant(tree)
        if isinstance(tree, Name):
            return self._named(tree)
        if self.sizes.is_size(tree):
            return operand_of_size(self._builder, self.sizes.of(tree), self._span(tree))
        if isinstance(tree, CallTree):
            return self._typed(tree) if tree.name.text in DTYPES else self._nested(tree)
        if isinstance(tree, Subscript):
            return self._subscript(tree, None)
        if not isinstance(tree, (Infix, Prefix)):
            raise FusecError("expected a value", span=self._span(tree))
        return self._expression(tree)

    def _quoted(self, tree: String) -> FusecError:
        """Return the error for a string where a value or a size is expected."""
        error = FusecError(
            f"unexpected `{self._source.text[tree.start]}`",
            span=self._source.span(tree.start),
            code=UNEXPECTED_TOKEN,
        )
        return self.words.unquoted(tree, error)

    def _constant(self, tree: Literal) -> Const:
        assert tree.value is not None
        try:
            return literal(tree.value)
        except FusecError as error:
            raise error.at(self._span(tree)) from None

    def _nested(self, tree: CallTree) -> Operand:
        results = self._call(tree, None)
        if len(results) != 1:
            raise FusecError(
                f"`{tree.name.text}` returns {len(results)} values and cannot be nested",
                span=self._span(tree),
                help=self.words.on_its_own_line(tree, len(results)),
                code=NESTED_RESULTS,
            )
        return results[0]

    def _typed(self, tree: CallTree) -> Const:
        """Return a constant of a given type: `f32(0.5)`."""
        values, dtype = [a.value for a in tree.arguments], DTYPES[tree.name.text]
        if dtype.is_complex and all(isinstance(v, Literal) for v in values):
            parts = [v.value for v in values if isinstance(v, Literal)]
            return Const(complex_number(parts, dtype, self._span(tree)), dtype)
        if len(values) != 1 or not isinstance(values[0], Literal) or values[0].value is None:
            raise FusecError(
                f"`{tree.name.text}(...)` takes one number",
                span=self._span(tree),
                help=f"to convert a tensor write `cast(x, {tree.name.text})`",
            )
        return Const(typed_number(values[0].value, dtype, self._span(tree)), dtype)

    def _named(self, tree: Name) -> Operand:
        owner, _, name = tree.text.rpartition(".")
        if owner and self._scope.knows(owner) and not self._scope.knows(tree.text):
            raise self.words.attribute(tree, owner, name)
        meaning = self._scope.find(tree.text, self._span(tree))
        if isinstance(meaning, Dim):
            return operand_of_size(self._builder, meaning, self._span(tree))
        return meaning

    def _expression(
        self, tree: Infix | Prefix, labels: Callable[[], list[str]] | None = None
    ) -> Operand:
        """Return the result of operators on values, that of the last one under `labels`."""
        operators: list[Infix | Prefix] = []
        leftmost: Tree = tree
        while isinstance(leftmost, (Infix, Prefix)) and not self.sizes.is_size(leftmost):
            operators.append(leftmost)
            leftmost = leftmost.left if isinstance(leftmost, Infix) else leftmost.operand
        value = self._value(leftmost)
        for each in reversed(operators):
            operands = [value, self._value(each.right)] if isinstance(each, Infix) else [value]
            value = self._operator(each, operands, labels if each is tree else None)
        return value

    def _operator(
        self, tree: Infix | Prefix, operands: list[Operand], labels: Callable[[], list[str]] | None
    ) -> Operand:
        span = self._span(tree)
        number = folded(tree.operator, operands, span)
        if number is not None:
            return number
        if isinstance(tree, Prefix) and tree.operator == "*":
            error = FusecError("`*` spreads a list of arguments, and this is a tensor", span=span)
            raise self.words.with_part(tree, tree.operand, error, "")
        name = operation_of(tree.operator, operands)
        names = None if labels is None else labels()
        try:
            (result,) = self._builder.call(name, operands, {}, names=names, span=span)
        except FusecError as error:
            if error.code is NEEDS_INTEGERS and tree.operator in NEEDING_INTEGERS:
                error = error.changed(help=needing_integers(tree))
            op, trees = ops.TABLE[name], frameworks.parts_of(tree)
            given = {p.name: part for p, part in zip(op.operands, trees, strict=False)}
            raise self._with_dims(self.words.mended(tree, op, given, error)).at(span) from None
        return result

    def _with_dims(self, error: FusecError) -> FusecError:
        """Return an error of extents that are equal at the default sizes, suggesting a line."""
        is_guess = error.guess is not None or not isinstance(error, Unequal)
        return error if is_guess else self.words.with_dims(error, self._builder.hints)

    def _one_of(self, tree: Subscript) -> Operand | None:
        """Return the result that `topk(x, 2)[1]` selects; None for subscripts of values."""
        if not isinstance(tree.base, CallTree) or len(tree.keys) != 1:
            return None
        place, count = integer_literal(tree.keys[0]), self.words.count_of(tree.base)
        if place is None or count < 2 or not -count <= place < count:
            return None
        results = [*self._call(tree.base, None)]
        return results[place] if len(results) == count else None

    def _subscript(self, tree: Subscript, names: Sequence[str] | None) -> Operand:
        span = self._span(tree)
        one = self._one_of(tree) if names is None else None
        if one is not None:
            return one
        value = self._builder.resolve(self._value(tree.base))
        rows = len(tree.keys) > 1 and is_counted(tree.keys[0])  # of a dim, in order
        shape, read = value.type.shape or (), tree.keys[1:] if rows else tree.keys
        keys: list[Any] = [*([[]] if rows else []), *map(self._key, read)]
        call = as_calls(tree, shape, keys, listed_sizes)
        if isinstance(call, Subscript):
            return self._subscript(call, names)
        if isinstance(call, CallTree):
            return self._call(call, names)[0]
        try:
            what = f"it is {value.type}"
            steps = steps_of(keys, len(shape), shape.__getitem__, what, self._divides(shape))
            for place, (name, arguments) in enumerate(steps or [("set", list[Any]())], 1):
                if name == "select" and isinstance(arguments[0], Dim):
                    arguments[0] = operand_of_size(self._builder, arguments[0], span)
                operands, attributes = bind(ops.TABLE[name], [value, *arguments], {})
                last = names if place >= len(steps) else None
                (value,) = self._builder.call(name, operands, attributes, names=last, span=span)
        except FusecError as error:
            raise self._indexed(tree, value, keys, error).at(span) from None
        return value

    def _divides(self, shape: Shape) -> Callable[[int, int], bool]:
        """Return a function that tells whether a dim of a shape is a known multiple of a number."""
        known = self._builder.bindings

        def is_multiple(axis: int, step: int) -> bool:
            return not shape[axis].is_const and known.size(mod(shape[axis], step)) == 0

        return is_multiple

    def _indexed(
        self, tree: Subscript, value: Operand, keys: Sequence[Any], error: FusecError
    ) -> FusecError:
        """Return an error of a subscript, suggesting a call if a mask is used as index."""
        axes = [k for k, key in enumerate(keys) if key != slice(None)]
        index = keys[axes[0]] if len(axes) == 1 else None
        rank = len(value.type.shape or ())
        if isinstance(index, Value) and index.shape and index.dtype.is_float:
            whole = frameworks.substituted(
                frameworks.parsed("cast(i, i64)"), {"i": tree.keys[axes[0]]}, tree
            )
            keys_ = [whole if k == axes[0] else key for k, key in enumerate(tree.keys)]
            wrong = FusecError(
                f"an index is an integer or a mask, got {index.dtype}",
                notes=[f"{index.name} is {index.type}"],
                code=ARGUMENT_KIND,
            )
            why = "declare it as integers, or cast it"
            return self.words.with_part(tree, replace(tree, keys=tuple(keys_)), wrong, why)
        if isinstance(index, Value) and index.dtype is BOOL and axes == [0]:
            if index.shape != (value.type.shape or ())[: len(index.shape)]:
                return error
            message = "a mask as an index: the shape of the result depends on data"
            error = Unsupported(message, code=error.code)
            return self.words.masked(tree, rank - len(index.shape), len(index.shape), error)
        return error

    def _key(self, tree: Tree) -> Any:
        """Return an entry of a subscript in Python's form: an integer, a slice, None or `...`."""
        if isinstance(tree, Dots):
            return ...
        if isinstance(tree, Range):
            low, high, step = (None if part is None else self.sizes.of(part)
                               for part in (tree.low, tree.high, tree.step))  # fmt: skip
            return slice(low, high, step.value if step is not None and step.is_const else step)
        if isinstance(tree, Literal) and tree.value is None:
            return None
        if isinstance(tree, Literal) and type(tree.value) is not int:
            raise FusecError(
                f"`{self._source.text[tree.start : tree.end]}` is not an index",
                span=self._span(tree),
                help="an index is an integer, a slice, `...`, `none` or a tensor",
            )
        if not self.sizes.is_size(tree):
            return [] if isinstance(tree, Items) else self._value(tree)
        place = self.sizes.of(tree)
        return place.value if place.is_const else place

    # -- attributes

    def _attribute(self, tree: Tree, op: OpDef, param: Param) -> Any:
        if isinstance(tree, Literal):
            if isinstance(tree.value, float) and param.kind in _SIZE_KINDS:
                raise self._fractional(tree, op, param)
            # `none` is also a word: reduction=none, approximate=none.
            return "none" if tree.value is None and param.kind == "str" else tree.value
        if isinstance(tree, Items):
            return [self._attribute(item, op, param) for item in tree.items]
        if isinstance(tree, String) and param.kind == "str":
            return tree.text
        if isinstance(tree, String) and param.kind == "bool":
            bare = Literal(tree.text.lower() not in _FALSE, tree.start, tree.end)
            message = f"`{param.name}` of `{op.name}` must be a bool, got a string"
            error = FusecError(message, span=self._span(tree), code=ARGUMENT_KIND)
            raise self.words.with_part(tree, bare, error, "")
        if isinstance(tree, String) and param.kind in ("dims", "axis") and not tree.text.isdigit():
            raise FusecError(
                f"`{param.name}` of `{op.name}` must be a number, got a string",
                span=self._span(tree),
                help="dims are numbered from 0, and from the end: the last one is -1",
                code=ARGUMENT_KIND,
            )
        if isinstance(tree, String) and param.kind != "dtype":
            raise self._quoted(tree)
        if param.kind == "dtype":
            return self._dtype(tree, op, param)
        if isinstance(tree, Name) and param.kind == "str":
            return tree.text
        if param.kind == "float":
            return self._value(tree)
        if param.kind not in _SIZE_KINDS:
            raise FusecError(
                f"`{param.name}` of `{op.name}` must be a {param.kind}",
                span=self._span(tree),
                help="write `true` or `false`" if param.kind == "bool" else None,
                code=ARGUMENT_KIND,
            )
        return self.sizes.of(tree)

    def _fractional(self, tree: Literal, op: OpDef, param: Param) -> FusecError:
        """Return the error of a float where an integer is required, suggesting an equal one."""
        error = FusecError(
            f"`{param.name}` of `{op.name}` must be an integer, got {tree.value}",
            span=self._span(tree),
            code=ARGUMENT_KIND,
        )
        if not isinstance(tree.value, float) or not tree.value.is_integer():
            return error
        whole = Literal(int(tree.value), tree.start, tree.end)
        return self.words.with_part(tree, whole, error, "sizes are integers")

    def _dtype(self, tree: Tree, op: OpDef, param: Param) -> DType:
        if not isinstance(tree, (Name, String)):
            raise FusecError(
                f"`{param.name}` of `{op.name}` must be a dtype",
                span=self._span(tree),
                help="one of " + ", ".join(DTYPES),
            )
        owner, _, name = tree.text.rpartition(".")
        try:
            return dtypes.find(name if owner in PREFIXES else tree.text)
        except FusecError as error:
            raise error.at(self._span(tree)) from None


def needing_integers(tree: Infix | Prefix) -> str:
    """Return the help for an operator of integers that has floats as operands."""
    compared = isinstance(tree, Prefix) or any(
        isinstance(part, Infix) and part.operator in COMPARISONS for part in (tree.left, tree.right)
    )
    word = {"&": "logical_and", "|": "logical_or"}.get(tree.operator)
    if compared or word is None or isinstance(tree, Prefix):
        return NEEDING_INTEGERS[tree.operator]
    call = f"{word}({plain_text(tree.left)}, {plain_text(tree.right)})"
    return f"for values that are not 0 write `{call}`, for a condition compare them"


def _divisors(tree: Tree) -> Sequence[Tree]:
    """Return the expressions to the right of `//`."""
    own = [tree.right] if isinstance(tree, Infix) and tree.operator == "//" else []
    return [*own, *(right for part in frameworks.parts_of(tree) for right in _divisors(part))]


def _listed(op: OpDef, arguments: Sequence[Argument]) -> Sequence[Argument]:
    """Return the arguments with a list for the last parameter if it is passed separately.

    `permute(x, 0, 2, 1)`, the form of PyTorch's method, is `permute(x, [0, 2, 1])`.
    """
    last = len(op.params) - 1
    spread = arguments[last:]
    plain = all(a.keyword is None and not isinstance(a.value, Items) for a in arguments)
    if last < 1 or len(spread) < 2 or op.params[last].kind not in LISTS or not plain:
        return arguments
    values = tuple(a.value for a in spread)
    return (*arguments[:last], Argument(None, Items(values, values[0].start, values[-1].end)))
