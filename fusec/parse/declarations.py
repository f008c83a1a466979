"""The `dims:` and `inputs:` of a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as MappingOf

from fusec.codes.declarations import (
    INVALID_SIZE,
    LAYOUT_ENTRIES,
    LAYOUT_TWICE,
    NOT_A_MULTIPLE,
    SCALAR_LAYOUT,
    STRIDE_ORDER,
    TENSOR_DEFAULT,
)
from fusec.codes.document import MISSING_FIELD, UNKNOWN_FIELD
from fusec.codes.names import USED_BEFORE_DEFINITION
from fusec.codes.usage import SET_UNKNOWN_DIM, SET_VALUE
from fusec.dataclasses import dataclass, field
from fusec.diagnostics import FusecError, Span
from fusec.generator import PARTS
from fusec.ir import dtype as dtypes
from fusec.ir.dim import Dim, product, symbol
from fusec.ir.dtype import BOOL, U64, DType
from fusec.ir.graph import Value
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import shardings
from fusec.parse.fields import (
    Problems,
    boolean,
    check_fields,
    did_you_mean,
    integer,
    listing,
    number,
    wrong,
)
from fusec.parse.foreign import frameworks
from fusec.parse.numbers import complex_number, number_in, typed_number
from fusec.parse.scope import Scope, circle, circle_text
from fusec.parse.syntax.expressions import Parser
from fusec.parse.syntax.trees import Items, Literal, Name, String, Tree
from fusec.parse.yaml_nodes import Entry, Listing, Mapping, Scalar, YamlNode

DIM_FIELDS = ("default", "multiple_of", "buckets", "anonymous")
INPUT_FIELDS = (
    "type", "strides", "contiguity", "stride_order", "range", "default", "on_cpu", "generator",
    *shardings.FIELDS,
)  # fmt: skip
_TYPE_HELP = "a type is written `bf16[B, H]`; without brackets it is a scalar: `f32 = 1e-5`"
SizeOf = Callable[[Tree], Dim]
_OTHER_TYPES: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"(?:tensor|memref)<((?:\w+x)+)(\w+)>", lambda m: f"{m[2]}[{m[1][:-1].replace('x', ', ')}]"),
    (r"(Float|Int|Bool)\w*\[[\w.]+, *['\"]([^'\"]+)['\"]\]",
     lambda m: f"{_OF_JAXTYPING[m[1]]}[{', '.join(m[2].split())}]"),
)  # fmt: skip
"""Types of MLIR and jaxtyping, and the equivalents in files."""
_OF_JAXTYPING = {"Float": "f32", "Int": "i64", "Bool": "bool"}


_ANY_SIZE = frozenset({"dynamic", "any", "auto", "none", "variable", "unknown", "symbolic", "?"})
"""Words for a dynamic size in other formats."""


@dataclass
class Declarations:
    """Reads dims and inputs into a builder and a scope."""

    builder: GraphBuilder
    scope: Scope
    problems: Problems
    size_of: SizeOf
    overrides: MappingOf[str, int]
    inputs: list[Value]
    divided: shardings.Shardings
    hints: dict[str, int] = field(default_factory=dict[str, int])
    uses: dict[str, MappingOf[str, None]] = field(default_factory=dict[str, MappingOf[str, None]])
    """The names from which the size of each dim is computed."""
    settable: list[str] = field(default_factory=list[str])

    def dims(self, node: Mapping) -> None:
        """Declare every dim."""
        self.scope.later = {e.key.text: e.key.span for e in node.entries}
        self.uses = {e.key.text: _names_used(e.value) for e in node.entries}
        for entry in node.entries:
            name, span = entry.key.text, entry.key.span
            meant = name.partition("=")[0].strip()
            with self.problems.collect(span, lambda n=meant, s=span: self.scope.poison(n, s)):
                if ".stride" in name:
                    # The planned size of a run-time stride, in the form that fusec prints.
                    self.hints[name] = integer(entry.value, f"the stride `{name}`")
                    continue
                self.scope.check_new(name, "dim", span)
                self.scope.define(name, self._dim(name, entry), span)

    def _is_size(self, text: str) -> bool:
        """Return whether quoted text may be a size: any word in it must be the name of a dim."""
        return not text.isidentifier() or text in self.scope.later

    def _dim(self, name: str, entry: Entry) -> Dim:
        node, multiple_of, anonymous, buckets = entry.value, 1, False, ()
        help = f"write `{name}: 4096` or `{name}: {{default: 4096, multiple_of: 8}}`"
        power = re.fullmatch(r"(\d+) *\*\* *(\d+)", node.text) if isinstance(node, Scalar) else None
        if power is not None and int(power[2]) < 64:
            size = int(power[1]) ** int(power[2])
            raise wrong(node, f"the size of dim `{name}` (an integer)", f"write `{name}: {size}`")
        if isinstance(node, Scalar) and not node.plain and not self._is_size(node.text.strip()):
            raise wrong(node, f"the size of dim `{name}` (an integer)", f"write `{name}: 4096`")
        if isinstance(node, Scalar) and isinstance(node.value, float) and abs(node.value) < 2**53:
            written = f"a size is an integer: write `{name}: {int(node.value)}`"
            raise wrong(node, f"the size of dim `{name}` (an integer)", written)
        if isinstance(node, Scalar) and node.text.lower() in _ANY_SIZE:
            why = "all sizes vary at run time: a dim has a default"
            raise wrong(node, f"the size of dim `{name}` (an integer)", f"{why}; {help}")
        if isinstance(node, Scalar) and isinstance(node.value, str):
            if node.text.strip().isdecimal():
                plain = f"write `{name}: {node.text.strip()}`"
                raise wrong(node, f"the size of dim `{name}` (an integer), without quotes", plain)
            return self._derived(name, node)
        if isinstance(node, Mapping):
            check_fields(node, DIM_FIELDS, f"dim `{name}`")
            given = {e.key.text: e.value for e in node.entries}
            if "default" not in given:
                raise FusecError(
                    f"dim `{name}` needs a `default`", span=node.span, help=help, code=MISSING_FIELD
                )
            if "multiple_of" in given:
                multiple_of = integer(
                    given["multiple_of"], f"`multiple_of` of `{name}` (an integer)"
                )
                if multiple_of < 1:
                    raise wrong(given["multiple_of"], "an integer of at least 1")
            if "anonymous" in given:
                anonymous = boolean(given["anonymous"], "true or false")
            if "buckets" in given:
                items = listing(given["buckets"], "a list of sizes").items
                buckets = tuple(self._size(i, f"a size of dim `{name}`", help) for i in items)
            node = given["default"]
        self.settable.append(name)
        default = self._size(node, f"the size of dim `{name}`", help)
        span = node.span
        if name in self.overrides:
            default, span = self.overrides[name], entry.key.span
            _check_override(name, default, multiple_of)
        if default % multiple_of:
            below = default - default % multiple_of
            raise FusecError(
                f"the default size of `{name}`, {default}, is not a multiple of {multiple_of}",
                span=span,
                help=f"{below} and {below + multiple_of} are",
                code=NOT_A_MULTIPLE,
            )
        return self.builder.declare_dim(
            name, default, multiple_of=multiple_of, anonymous=anonymous, buckets=buckets, span=span
        )

    def _size(self, node: YamlNode, what: str, help: str) -> int:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(node, f"{what} (an integer)", help)
        if value < 0:
            raise FusecError(
                f"{what} is negative",
                span=node.span,
                help=f"did you mean {-value}?"
                if value != -1
                else f"{help}: a default; other sizes are taken at run time",
                code=INVALID_SIZE,
            )
        if value >= 2**63:
            raise FusecError(f"{what} does not fit in 64 bits", span=node.span, code=INVALID_SIZE)
        return value

    def _derived(self, name: str, node: Scalar) -> Dim:
        if name in self.overrides:
            raise FusecError(f"`{name}` is computed from other dims and cannot be set")
        parser = Parser(node.source, *node.body)
        tree = parser.expression()
        parser.finish("size")
        around = circle(name, self.uses)
        for other in around or ():
            if other != name and self.scope.knows(other):
                self.scope.find(other, node.span)  # silent if that one was reported
        if around is not None:
            raise FusecError(
                circle_text(around),
                span=node.span,
                help=f"give one of them a number: write `{name}: 4096`",
                code=USED_BEFORE_DEFINITION,
            )
        size, hints = self.size_of(tree), self.builder.hints
        if size.symbols <= hints.keys() and (default := size.evaluate(hints)) < 0:
            given = ", ".join(f"{n} = {hints[n]}" for n in sorted(size.symbols))
            raise FusecError(
                f"the size of dim `{name}` is negative: {default} at {given}",
                span=node.span,
                help="a size is 0 or more: change the default sizes, or the expression",
                code=INVALID_SIZE,
            )
        return size

    def check_overrides(self) -> None:
        """Raise FusecError for an override of a name that the file does not declare."""
        for name, value in self.overrides.items():
            if ".stride" in name:
                self.hints[name] = value
            elif name not in self.settable and self.scope.span_of(name) is None:
                known = ", ".join(self.settable) or "none"
                raise FusecError(
                    f"cannot set `{name}`: the file has no such dim",
                    help=did_you_mean(name, self.settable) or f"dims: {known}",
                    code=SET_UNKNOWN_DIM,
                )

    def entries(self, node: Mapping) -> None:
        """Declare every input; sizes may be scalar inputs that are declared later."""
        names = (e.key.text for e in node.entries if _is_integer(e.value))
        self.scope.coming = {name: symbol(name, extent=False) for name in names}
        for entry in node.entries:
            name, span = entry.key.text, entry.key.span
            with self.problems.collect(span, lambda n=name, s=span: self._poison(n, s)):
                if "," in name:
                    words = [word.strip() for word in name.split(",")]
                    type = entry.value.text if isinstance(entry.value, Scalar) else "bf16[B, H]"
                    lines = " and ".join(f"`{word}: {type}`" for word in words)
                    raise FusecError("one input per line", span=span, help=f"write {lines}")
                self.scope.check_new(name, "value", span)
                value = self._input(name, entry)
                self.inputs.append(value)
                self.scope.define(name, value, span)
                if isinstance(entry.value, Mapping):
                    self.divided.read(name, value, entry.value, span)
        self.scope.coming = {}

    def _poison(self, name: str, span: Span) -> None:
        """Suppress errors about a wrongly declared input, and about the words of a wrong name."""
        words = re.findall(r"[A-Za-z_]\w*", name)
        for word in {name, *(words if "," in name else words[:1])}:
            if word == name or not self.scope.knows(word):
                self.scope.poison(word, span)

    def _input(self, name: str, entry: Entry) -> Value:
        node, span = entry.value, entry.key.span
        if isinstance(node, Scalar):
            given: dict[str, YamlNode] = {}
            type_node: YamlNode = node
        elif isinstance(node, Mapping):
            _check_shape_and_dtype(name, node)
            check_fields(node, INPUT_FIELDS, f"input `{name}`")
            given = {e.key.text: e.value for e in node.entries}
            if "type" not in given:
                help = _TYPE_HELP if not given else "write `type: bf16[B, H]`"
                raise FusecError(
                    f"input `{name}` needs a `type`", span=node.span, help=help, code=MISSING_FIELD
                )
            type_node = given["type"]
        else:
            raise wrong(node, f"the type of `{name}`", _TYPE_HELP)
        if not isinstance(type_node, Scalar) or not type_node.text.strip():
            raise wrong(type_node, f"the type of `{name}`", _TYPE_HELP)
        dtype, shape, default = self._type(name, type_node)
        if "generator" in given:
            return self._generator(name, (dtype, shape), given, span)
        if shape is None:
            return self._scalar(name, dtype, default, given, entry)
        if "default" in given or default is not None:
            where = given.get("default", type_node)
            raise FusecError(
                "only scalar inputs have defaults",
                span=where.span,
                help=f"write `{name}: {dtype} = ...` for a scalar, or compute the tensor in "
                f"`ops:`: `{name} = full([{', '.join(map(str, shape))}], ...)`",
                code=TENSOR_DEFAULT,
            )
        if name in self.overrides:
            close = next((n for n in self.settable if n.lower() == name.lower()), None)
            value = self.overrides[name]
            raise FusecError(
                f"`{name}` is a tensor: only dims and scalars can be set",
                help=f"did you mean `--set {close}={value}`?"
                if close
                else f"dims and scalars: {', '.join(self.settable) or 'none'}",
                code=SET_UNKNOWN_DIM,
            )
        if "strides" in given and ("contiguity" in given or "stride_order" in given):
            raise FusecError(
                "`strides` already define the layout",
                span=given["strides"].span,
                help="remove `contiguity` and `stride_order`",
                code=LAYOUT_TWICE,
            )
        low, high = self._range(given)
        return self.builder.input(
            name,
            dtype,
            shape,
            strides=self._strides(name, given.get("strides"), shape),
            contiguity=self._contiguity(name, given.get("contiguity"), len(shape)),
            stride_order=_order(given.get("stride_order"), len(shape)),
            low=low,
            high=high,
            on_cpu=boolean(given["on_cpu"], "true or false") if "on_cpu" in given else False,
            span=span,
            layout_span=given["strides"].span if "strides" in given else None,
        )

    def _generator(
        self,
        name: str,
        type: tuple[DType, list[Dim] | None],
        given: dict[str, YamlNode],
        span: Span,
    ) -> Value:
        """Declare an input from the program's random generator: its seed or its offset."""
        node = given["generator"]
        if not isinstance(node, Scalar) or node.value not in PARTS:
            raise wrong(node, "`seed` or `offset`")
        if type != (U64, []):
            where = given["type"].span
            raise FusecError("seed and offset of the generator are `u64[]`", span=where)
        for other in given.keys() - {"type", "generator"}:
            raise FusecError(
                f"`{name}` comes from the random generator and has no `{other}`",
                span=given[other].span,
            )
        return self.builder.generator_input(name, str(node.value), span)

    def _type(
        self, name: str, node: Scalar
    ) -> tuple[DType, list[Dim] | None, Literal | Items | None]:
        for form, told in _OTHER_TYPES:
            found = re.search(form, node.text)
            if found is not None:
                help = f"write `{name}: {told(found)}`"
                raise FusecError("the type of another language", span=node.span, help=help)
        parser = Parser(node.source, *node.body)
        if parser.token.kind == "number" or parser.token.text == "-":
            help = f"a scalar with a default is written `{name}: f32 = {node.text.strip()}`"
            raise parser.unexpected("a dtype", help)
        word = parser.name("a dtype")
        dtype = self._dtype(parser, word)
        shape: list[Dim] | None = None
        default: Literal | Items | None = None
        if parser.take("["):
            shape = []
            while parser.token.text != "]":
                tree = parser.expression()
                if isinstance(tree, Literal) and isinstance(tree.value, int) and tree.value < 0:
                    raise FusecError(
                        f"a size of `{name}` is negative",
                        span=parser.span(tree),
                        help="name the size under `dims:`, as in `B: 4096`",
                        code=INVALID_SIZE,
                    )
                shape.append(self.size_of(tree))
                if not parser.take(","):
                    break
            if parser.token.text not in ("]", ",") and parser.token.kind != "end":
                inner = re.match(r"\w+\s*\[([^\]]*)\]", node.text)
                words = re.findall(r"\w+", inner[1]) if inner is not None else []
                sizes = ", ".join(w for w in words if w != "x")
                raise parser.unexpected("`]` or `,`", f"write `{word.text}[{sizes}]`")
            parser.expect("]", " or `,`")
            if parser.token.text == "[":
                shown = ", ".join(re.findall(r"\w+", node.text)[1:])
                raise parser.unexpected("nothing after the type", f"write `{word.text}[{shown}]`")
        elif parser.token.text in ("(", "<"):
            inner = re.match(
                r"[(<]\s*([\w, *+/-]*?)\s*[)>]", node.source.text[parser.token.start :]
            )
            sizes = inner[1] if inner is not None and inner[1] else "B, H"
            raise parser.unexpected("`[`", f"write the shape in brackets: `{word.text}[{sizes}]`")
        if parser.take("="):
            _refuse_percentage(name, dtype, node, parser.token.start)
            tree = parser.expression()
            if isinstance(tree, Items) and dtype.is_complex:
                default = tree
            elif not isinstance(tree, Literal) or tree.value is None:
                number = number_in(tree)
                raise FusecError(
                    "a default is a number or bool",
                    span=parser.span(tree),
                    help=f"write `{name}: {dtype} = {number}`"
                    if number is not None
                    else f"write it without quotes, as in `{name}: {dtype} = 1.0`"
                    if isinstance(tree, String)
                    else f"write `{name}: bool = {_bool_said(tree)}`"
                    if dtype is BOOL
                    else f"write a number, as in `{name}: {dtype} = 1e-5`",
                )
            else:
                default = tree
        parser.finish("type")
        return dtype, shape, default

    def _dtype(self, parser: Parser, word: Name) -> DType:
        try:
            return dtypes.find(word.text)
        except FusecError as error:
            raise error.at(parser.span(word)) from None

    def _scalar(
        self,
        name: str,
        dtype: DType,
        default: Literal | Items | None,
        given: dict[str, YamlNode],
        entry: Entry,
    ) -> Value:
        span = entry.key.span
        for field_name in ("strides", "contiguity", "stride_order", "on_cpu", *shardings.FIELDS):
            if field_name in given:
                raise FusecError(
                    f"`{name}` is a scalar and has no `{field_name}`",
                    span=given[field_name].span,
                    help=f"a 0-dim tensor is written `{dtype}[]`",
                    code=SCALAR_LAYOUT,
                )
        value = default.value if isinstance(default, Literal) else None
        place = span if default is None else entry.key.source.span(default.start, default.end)
        if "default" in given:
            node = given["default"]
            found = node.value if isinstance(node, Scalar) else None
            if isinstance(node, Listing) and dtype.is_complex:
                default = _pair_of(node)
            elif found is None or isinstance(found, str):
                raise wrong(node, "a number or bool")
            else:
                value = found
            place = node.span
        self.settable.append(name)
        if name in self.overrides:
            value, default = self.overrides[name], None
        if isinstance(default, Items):
            parts = [i.value if isinstance(i, Literal) else None for i in default.items]
            value = complex_number(parts, dtype, place)
        elif value is not None:
            value = typed_number(value, dtype, place)
        low, high = self._range(given)
        return self.builder.input(name, dtype, None, default=value, low=low, high=high, span=span)

    def _range(self, given: dict[str, YamlNode]) -> tuple[float | None, float | None]:
        node = given.get("range")
        if node is None:
            return None, None
        items = listing(node, "a range, as in `[-1, 1]`", _range_help(node)).items
        if len(items) != 2:
            raise FusecError(f"a range has 2 ends, found {len(items)}", span=node.span)
        low, high = (number(i, "an end of the range (a number)") for i in items)
        if not low <= high:
            raise FusecError(f"the range is empty: {low} is above {high}", span=node.span)
        return low, high

    def _strides(self, name: str, node: YamlNode | None, shape: list[Dim]) -> list[Dim] | None:
        if node is None:
            return None
        dense = [product(shape[k + 1 :]) for k in range(len(shape))]
        written = f"write `strides: [{', '.join(map(str, dense))}]`, those of a dense tensor"
        items = _per_dim(node, "strides", f"`{name}`", len(shape), written).items
        strides: list[Dim] = []
        for item in items:
            if not isinstance(item, Scalar):
                raise wrong(item, "a stride, in elements")
            parser = Parser(item.source, *item.body)
            strides.append(self.size_of(parser.expression()))
            parser.finish("stride")
        return strides

    def _contiguity(self, name: str, node: YamlNode | None, rank: int) -> list[bool | None] | None:
        if node is None:
            return None
        flags: list[bool | None] = []
        written = f"write `contiguity: [{', '.join(['true'] * rank)}]`"
        for item in _per_dim(node, "contiguity", f"`{name}`", rank, written).items:
            value = item.value if isinstance(item, Scalar) else ""
            if value is not None and not isinstance(value, bool):
                raise wrong(item, "true, false or null", "null marks a broadcast or expanded dim")
            flags.append(value)
        return flags


_ENDS = r"[(\[]?\s*(-?[\d.]*\d)\s*(?:\.{2,3}|to|[-:;~]|,)\s*(-?[\d.]*\d)\s*[)\]]?"


def _range_help(node: YamlNode) -> str | None:
    """Return the range for a text such as `0..9`; None for others."""
    found = re.fullmatch(_ENDS, node.text.strip()) if isinstance(node, Scalar) else None
    return None if found is None else f"write `range: [{found[1]}, {found[2]}]`"


def _is_integer(node: YamlNode) -> bool:
    """Return whether an input is a scalar that may hold a size."""
    if isinstance(node, Mapping):
        node = node.get("type") or node
    text = node.text.partition("=")[0].strip() if isinstance(node, Scalar) else ""
    dtype = dtypes.known(text)
    return dtype is not None and dtype.is_integer


def _pair_of(node: Listing) -> Items:
    """Return the entries of a complex default: two numbers."""
    items = [i.value if isinstance(i, Scalar) else None for i in node.items]
    numbers = (None if isinstance(i, str) else i for i in items)
    return Items(tuple(Literal(n, 0, 0) for n in numbers), 0, 0)


def _per_dim(node: YamlNode, what: str, name: str, rank: int, help: str) -> Listing:
    items = listing(node, f"a list of {what}, one for each dim", help)
    if len(items.items) != rank:
        count = len(items.items)
        raise FusecError(
            f"{count} entr{'y' if count == 1 else 'ies'} in `{what}` for {rank} "
            f"dim{'s' * (rank != 1)} of {name}",
            span=node.span,
            help=help,
            code=LAYOUT_ENTRIES,
        )
    return items


def _order(node: YamlNode | None, rank: int) -> list[int] | None:
    return None if node is None else stride_order(node, rank)


def stride_order(node: YamlNode, rank: int) -> list[int]:
    """Return nvFuser's stride order: the rank of each dim counted from the fastest."""
    dense = f"write `stride_order: {list(reversed(range(rank)))}`, that of a dense tensor"
    items = _per_dim(node, "stride_order", "the tensor", rank, dense).items
    order = [integer(i, "the position of a dim in memory, 0 for the innermost") for i in items]
    if sorted(order) != list(range(rank)):
        raise FusecError(
            f"stride_order is a permutation of 0 to {rank - 1}, found {order}",
            span=node.span,
            code=STRIDE_ORDER,
        )
    return order


def _check_override(name: str, value: int, multiple_of: int) -> None:
    if not 0 <= value < 2**63:
        raise FusecError(f"cannot set `{name}` to {value}: it is not a size", code=SET_VALUE)
    if value % multiple_of:
        raise FusecError(
            f"cannot set `{name}` to {value}: it is declared as a multiple of {multiple_of}",
            help=f"nearest: {max(multiple_of, round(value / multiple_of) * multiple_of)}",
            code=SET_VALUE,
        )


def _names_used(node: YamlNode) -> MappingOf[str, None]:
    """Return the names in the size of a dim, in order; empty for a number or a wrong size."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return {}
    try:
        tree = Parser(node.source, *node.body).expression()
    except FusecError:
        return {}
    return dict.fromkeys(frameworks.names_in(tree))


def _check_shape_and_dtype(name: str, node: Mapping) -> None:
    """Raise FusecError for an input that is declared with a shape and a dtype."""
    shape, dtype = node.get("shape"), node.get("dtype")
    if shape is None:
        return
    items = shape.items if isinstance(shape, Listing) else ()
    sizes = [item.text for item in items if isinstance(item, Scalar)]
    kind = dtype.text if isinstance(dtype, Scalar) else "f32"
    key = next(e.key for e in node.entries if e.key.text == "shape")
    raise FusecError(
        f"unknown field `shape` in input `{name}`",
        span=key.span,
        help=f"the type holds the shape: write `{name}: {kind}[{', '.join(sizes)}]`",
        code=UNKNOWN_FIELD,
    )


def _bool_said(tree: Tree) -> str:
    """Return the bool that a word is in YAML 1.1; true for others."""
    word = tree.text.lower() if isinstance(tree, Name) else ""
    return "false" if word in ("no", "off", "n") else "true"


def _refuse_percentage(name: str, dtype: DType, node: Scalar, start: int) -> None:
    """Raise FusecError for a default that is a percentage, suggesting the number."""
    found = re.match(r"(\d+(?:\.\d+)?) *%\s*\Z", node.source.text[start : node.body[1]])
    if found is not None:
        raise FusecError(
            "a default is a number or bool",
            span=node.source.span(start, start + len(found[0].rstrip())),
            help=f"write `{name}: {dtype} = {float(found[1]) / 100:g}`",
        )
