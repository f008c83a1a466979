"""Fusion files: YAML in, a Fusion out, with errors that point."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from types import MappingProxyType

from fusec.codes.calls import NESTED_RESULTS
from fusec.codes.declarations import ALIAS_NOT_AN_INPUT, DIM_AS_VALUE, NO_OUTPUTS
from fusec.codes.document import (
    MISSING_FIELD,
    SPLIT_OP_LINES,
)
from fusec.codes.names import UNDEFINED_NAME
from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError, Span
from fusec.ir.graph import Const, Fusion, Operand, Value
from fusec.ops.builder.arguments import Miscounted
from fusec.ops.builder.build import GraphBuilder
from fusec.ops.limits import check_layouts
from fusec.ops.meshes import resized
from fusec.ops.names import UNUSED, label_of
from fusec.parse import fields
from fusec.parse.aliased import with_cast
from fusec.parse.calls import Calls
from fusec.parse.declarations import Declarations, stride_order
from fusec.parse.fields import Problems
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.uses import names_of_values, values_read
from fusec.parse.phases import phases_of
from fusec.parse.reserved import RESERVED, refuse_reserved
from fusec.parse.schedules import overrides_of
from fusec.parse.scope import Scope, Skip
from fusec.parse.sections import (
    OUTPUTS_HELP,
    RESULTS,
    SECTIONS,
    became_mapping,
    is_cut,
    joined_line,
    names_of_outputs,
    of_names,
    refuse_nested,
    refuse_python,
)
from fusec.parse.segments import boundaries_of, pins_of
from fusec.parse.shardings import FIELDS as SHARDING_FIELDS
from fusec.parse.shardings import Shardings, mesh_of
from fusec.parse.source import Source, source_of_file, source_of_text
from fusec.parse.syntax.lines import line_text
from fusec.parse.syntax.op_lines import Divided, OpLineParser
from fusec.parse.syntax.trees import Name, OpLine
from fusec.parse.yaml_nodes import Listing, Mapping, Scalar, YamlNode, parse_yaml

FIELDS = (
    "fusion", "doc", "mesh", "dims", "inputs", "ops", "outputs", "shardings", "segments", "phases",
    "boundaries", "schedules",
)  # fmt: skip
_WITH_ENTRIES = ("mesh", "dims", "inputs", "shardings", "segments", "phases", "schedules")
"""The fields that contain names of the file."""
_MOST_GUESSES = 4
"""Maximum number of parts of a line that are corrected in turn for its suggestion."""
_NO_OVERRIDES: MappingOf[str, int] = MappingProxyType({})


def read_file(
    path: str | os.PathLike[str], overrides: MappingOf[str, int] = _NO_OVERRIDES
) -> Fusion:
    """Return the fusion of a YAML file; `overrides` replace default sizes by name."""
    return _Reader(source_of_file(path), overrides).read()


def read_text(
    text: str, file: str = "<text>", overrides: MappingOf[str, int] = _NO_OVERRIDES
) -> Fusion:
    """Return the fusion that `text` describes; `file` is the name that errors show."""
    return _Reader(source_of_text(text, file), overrides).read()


@dataclass(frozen=True)
class _GoneOn:
    """Whether the intended meaning of a wrong line is known.

    count: how many results the suggested line has, 0 if it has as many as are named. error: the
    error of the suggested line, if any.
    """

    known: bool
    count: int = 0
    error: FusecError | None = None


class _Reader:
    """Reads one file, collecting errors across sections."""

    def __init__(self, source: Source, overrides: MappingOf[str, int]) -> None:
        self.source, self.overrides = source, overrides
        self.problems, self.scope = Problems(), Scope()
        self.lines: list[OpLine] = []
        self.inputs: list[Value] = []
        self.read_last = frozenset[str]()
        """The names that the outputs use."""

    def read(self) -> Fusion:
        refuse_python(self.source)
        root = parse_yaml(self.source)
        root = fields.mapping(
            root, "a fusion file (a mapping)", "a fusion file begins with `fusion: name`"
        )
        fields.check_fields(root, (*FIELDS, *RESERVED), "the file", _WITH_ENTRIES)
        refuse_nested(root)
        refuse_reserved(root, self.problems)
        builder = self._builder(root)
        calls = Calls(self.source, builder, self.scope)
        self.inputs = calls.inputs
        self.divided = Shardings(calls.sizes.of, builder.resolve)
        self._mesh(root.get("mesh"), root.get("dims"))
        declared = Declarations(
            builder, self.scope, self.problems, calls.sizes.of, self.overrides, calls.inputs,
            self.divided,
        )  # fmt: skip
        for key, read in (("dims", declared.dims), ("inputs", declared.entries)):
            section = root.get(key)
            if section is not None and not fields.is_empty(section):
                with self.problems.collect(None, self.scope.set_incomplete):
                    what, help = SECTIONS[key]
                    read(fields.mapping(section, what, of_names(key, section) or help))
        with self.problems.collect():
            declared.check_overrides()
        outputs = root.get("outputs")
        self.read_last = frozenset(names_of_outputs(outputs))
        self._ops(root.get("ops"), builder, calls)
        with self.problems.collect():
            if outputs is None:
                raise FusecError(
                    "the file has no `outputs`",
                    span=root.span,
                    help=OUTPUTS_HELP,
                    code=MISSING_FIELD,
                )
            self._outputs(outputs, builder)
        said = root.get("shardings")
        if said is not None and not fields.is_empty(said):
            with self.problems.collect():
                self.divided.section(said, lambda k: self._value(k, "a sharding"), self.problems)
        segments = root.get("segments")
        self.problems.check()
        fusion = _with_hints(builder.finish(), declared.hints)
        fusion = replace(fusion, mesh=self.divided.mesh, shardings=self.divided.named)
        if segments is not None and not fields.is_empty(segments):
            fusion = replace(fusion, pins=pins_of(segments, fusion, self.lines))
        boundaries = root.get("boundaries")
        if boundaries is not None:
            fusion = replace(fusion, boundaries=boundaries_of(boundaries))
        phases = root.get("phases")
        if phases is not None and not fields.is_empty(phases):
            fusion = replace(fusion, phases=phases_of(phases, fusion))
        schedules = root.get("schedules")
        if schedules is not None and not fields.is_empty(schedules):
            fusion = replace(fusion, schedules=overrides_of(schedules, fusion))
        return fusion

    def _builder(self, root: Mapping) -> GraphBuilder:
        name_node, doc_node, name, doc = root.get("fusion"), root.get("doc"), "fusion", ""
        with self.problems.collect():
            if name_node is None:
                help = "begin with `fusion: name`"
                raise FusecError(
                    "the file has no `fusion` field", span=root.span, help=help, code=MISSING_FIELD
                )
            if not isinstance(name_node, Scalar):
                help = "write `fusion: name`"
                raise fields.wrong(name_node, "the name of the fusion", help)
            given = fields.text(name_node, "the name of the fusion")
            self.scope.check_new(given, "fusion", name_node.span)
            name = given
        with self.problems.collect():
            if doc_node is not None:
                doc = fields.text(doc_node, "a description").rstrip("\n")
        return GraphBuilder(name, doc=doc, source=self.source.file)

    def _mesh(self, node: YamlNode | None, dims: YamlNode | None) -> None:
        """Read the mesh; a size given for an axis resizes it unless a dim has that name."""
        if node is not None:
            self.divided.known = False
            with self.problems.collect():
                mesh = mesh_of(node)
                declared = [e.key.text for e in dims.entries] if isinstance(dims, Mapping) else []
                taken = {n for n, _ in mesh.axes if n not in declared}
                given = {n: size for n, size in self.overrides.items() if n in taken}
                self.overrides = {n: s for n, s in self.overrides.items() if n not in taken}
                self.divided.mesh = resized(mesh, given)
                self.divided.known = True

    # -- ops

    def _ops(self, node: YamlNode | None, builder: GraphBuilder, calls: Calls) -> None:
        if node is None or fields.is_empty(node):
            return
        try:
            items = self._op_items(node)
        except FusecError:
            self.problems.check()
            raise
        parsed = [self._parsed(item) for item in items]
        self.lines = [line for line in parsed if line is not None]
        names = [n for line in self.lines for n in line.names]
        self.scope.later = {n.text: self.source.span(n.start, n.end) for n in names}
        used = ((line, frameworks.names_in(line.tree)) for line in self.lines)
        self.scope.uses = {
            n.text: dict.fromkeys(u.partition(".")[0] for u in used_names)
            for line, used_names in used
            for n in line.names
        }
        below = self._read_below(parsed)
        for item, line, read in zip(items, parsed, below, strict=True):
            if line is None:
                self._poison(item)
            else:
                self._op(line, builder, calls, read)

    def _read_below(self, lines: Sequence[OpLine | None]) -> Sequence[frozenset[str]]:
        """Return the names that are read after each line, by other lines and by outputs."""
        read, found = self.read_last, list[frozenset[str]]()
        for line in reversed(lines):
            found.append(read)
            read = read.union(() if line is None else values_read(line.tree))
        return found[::-1]

    def _op_items(self, node: YamlNode) -> Sequence[YamlNode]:
        if isinstance(node, Scalar) and "=" in node.text and node.plain:
            from fusec.parse.traps import without_dash

            raise without_dash(node.source, node.start, entry="ops:")
        if isinstance(node, Scalar) and node.source.text[node.start] in "|>":
            begun = all(line.lstrip().startswith("-") for line in node.text.splitlines())
            sign = f"remove the `{node.source.text[node.start]}` after `ops:`"
            help = sign if begun else f"{sign}, and begin each line with `- `"
            raise fields.wrong(node, "a list of op lines", help)
        node = fields.listing(node, "a list of op lines", "write one op per line: `- y = relu(x)`")
        if node.flow and any(isinstance(i, Scalar) and is_cut(i) for i in node.items):
            raise FusecError(
                "`[...]` splits op lines at every comma",
                span=node.span,
                help="write one op per line, each beginning with `- `",
                code=SPLIT_OP_LINES,
            )
        return node.items

    def _parsed(self, item: YamlNode) -> OpLine | None:
        with self.problems.collect(item.span):
            if isinstance(item, Mapping):
                return self._line_with_colon(item)
            if not isinstance(item, Scalar):
                text = item.source.text[item.start : item.end].partition("\n")[0].strip()
                line = text.removeprefix("[").removesuffix("]").removeprefix("- ").strip()
                only = len(item.items) == 1 and "=" in line
                help = "results are named without brackets: `a, b = op(x)`"
                raise fields.wrong(item, "an op line", f"write `- {line}`" if only else help)
            if not item.text.strip():
                raise fields.wrong(item, "an op line", "remove this `-`")
            joined = joined_line(item)
            if joined is not None:
                raise joined
            return OpLineParser(item.source, *item.body).op_line()
        return None

    def _line_with_colon(self, item: Mapping) -> OpLine:
        """Return the op line that YAML parsed as a mapping, with an error that corrects it."""
        error = became_mapping(item)
        try:
            line = OpLineParser(item.source, item.start, item.end).op_line()
        except Divided:
            raise
        except FusecError:
            raise error from None
        return replace(line, wrong=line.wrong or error)

    def _poison(self, item: YamlNode) -> None:
        """Suppress errors about names that an unreadable line was meant to define."""
        for entry in item.entries if isinstance(item, Mapping) else ():
            for found in re.finditer(r"[A-Za-z_]\w*", entry.key.text.partition("=")[0]):
                self.scope.poison(found[0], item.span)
        text, known = self.source.text[item.start : item.end], isinstance(item, Mapping)
        for line in re.finditer(RESULTS, text):
            for found in re.finditer(r"[A-Za-z_]\w*", line[1]):
                self.scope.poison(found[0], item.span)
                known = True
        if not known:
            self.scope.set_incomplete()

    def _op(self, line: OpLine, builder: GraphBuilder, calls: Calls, below: frozenset[str]) -> None:
        spans = [self.source.span(n.start, n.end) for n in line.names]

        gone_on = False

        def poison() -> None:
            for name, span in zip(line.names, spans, strict=True):
                if not gone_on:
                    self.scope.poison(name.text, span)

        def go_on() -> None:
            poison()
            self._other_names(line)

        with self.problems.collect(spans[0], go_on):
            plain = calls.words.plain(line)
            static = calls.words.static(line) if plain is None else None
            if static is not None:
                raise static
            if plain is not None and calls.says_nothing(plain):
                return  # `B, H = x.shape` of a tensor [B, H]
            twice, made = self._names_given_again(line, spans), None
            try:
                overwriting = calls.words.overwriting(line, below) if line.wrong is None else None
                if overwriting is not None:
                    made, error = overwriting
                    raise error
                if twice or plain is None:
                    made, error = calls.words.python(line, twice)
                    raise error
                read = plain
                results = calls.line(read, lambda: self._labels(read, builder))
            except FusecError as error:
                error, gone = self._meant(line, made, error, builder, calls)
                gone_on = gone.known
                for name in () if gone_on or made is None else made.names:
                    if name.text != UNUSED and not self.scope.knows(name.text):
                        self.scope.poison(name.text, spans[0])
                raise self._with_all_named(line, error, gone.count, builder, calls) from None
            for name, result in zip(read.names, results, strict=True):
                if name.text != UNUSED:
                    span = self.source.span(name.start, name.end)
                    self.scope.define(name.text, result, span)

    def _other_names(self, line: OpLine) -> None:
        """Report each undefined name of a wrong line once, so that one run reports them all."""
        known = {(s.line, s.column) for s in self.problems.spans}
        for name in names_of_values(line.tree):
            span = self.source.span(name.start, name.end)
            if not self.scope.is_undefined(name.text):
                continue
            if (span.line, span.column) not in known:
                with self.problems.collect(span):
                    self.scope.find(name.text, span)
            self.scope.poison(name.text, span)

    def _names_given_again(self, line: OpLine, spans: Sequence[Span]) -> MappingOf[str, FusecError]:
        """Return the errors of names that already have a value; raise others."""
        twice: dict[str, FusecError] = {}
        for name, span in zip(line.names, spans, strict=True):
            if name.text == UNUSED:
                continue
            try:
                self.scope.check_new(name.text, "value", span)
            except FusecError as error:
                if not isinstance(self.scope.meaning(name.text), (Value, Const)):
                    raise
                twice[name.text] = error
        return twice

    def _with_all_named(
        self, line: OpLine, error: FusecError, count: int, builder: GraphBuilder, calls: Calls
    ) -> FusecError:
        """Return the error of a line with a name for each result, so that its help has them too.

        count: how many the suggested line has, 0 if it has as many as are named.
        """
        if count <= len(line.names):
            return error
        unused = [Name(UNUSED, n.start, n.start) for n in line.names[:1]]
        names = (*line.names, *unused * (count - len(line.names)))
        try:
            ours = calls.words.line_in_ours(line) if calls.words.plain(line) is None else line
            named, besides = replace(ours, names=names, wrong=None), calls.words.missing
            calls.line(named, lambda: [builder.fresh_name(f"unused_{k}") for k in range(count)])
        except FusecError as again:
            return error if isinstance(again, Miscounted) else again
        except Skip:
            return error
        help = ", and ".join([f"write {line_text(named)}", *besides])
        return error if ours is line else error.changed(help=help)

    def _meant(
        self,
        line: OpLine,
        made: OpLine | None,
        error: FusecError,
        builder: GraphBuilder,
        calls: Calls,
    ) -> tuple[FusecError, _GoneOn]:
        """Define the intended results of a wrong line, and return its error with a suggested line.

        A suggested line is tried; its own errors are corrected too, a few times.
        """
        gone = _GoneOn(False)
        for _ in range(_MOST_GUESSES):
            guess = error.guess
            undo = builder.assume(None if guess is None else guess.declares)
            gone = self._go_on(line, made if guess is None else guess.line, builder, calls)
            if gone.known:
                return error, gone
            undo()
            if guess is None and gone.error is not None and gone.count <= len(line.names):
                error = _with_next_error(error, gone.error, calls.words.line_in_ours(line))
                guess = error.guess
                if guess is not None:
                    continue
            if guess is None or gone.count > len(line.names):
                return error, gone
            again = gone.error
            if again is not None and again.code is NESTED_RESULTS:
                help = ": ".join(filter(None, (guess.otherwise, again.diagnostic.help)))
                return error.changed(help=help), gone
            if again is None or again.guess is None:
                return error.changed(help=guess.otherwise), gone
            if again.guess.line == guess.line:
                break
            error = error.changed(help=again.diagnostic.help, guess=again.guess)
        untold = None if error.guess is None else error.guess.otherwise
        return error.changed(help=untold, guess=None), gone

    def _go_on(
        self, line: OpLine, made: OpLine | None, builder: GraphBuilder, calls: Calls
    ) -> _GoneOn:
        """Define the intended results of a wrong line, and return whether they are known."""
        try:
            ours = made or calls.words.line_in_ours(line)
            results = calls.line(ours, lambda: self._labels(ours, builder))
            if len(results) != len(ours.names):
                return _GoneOn(False)
            for name in line.names[len(results) :]:
                self.scope.poison(name.text, self.source.span(name.start, name.end))
            for names in (line.names, ours.names):
                for name, result in zip(names, results, strict=False):
                    if name.text != UNUSED:
                        span = self.source.span(name.start, name.end)
                        self.scope.define(name.text, result, span)
        except Miscounted as error:
            return _GoneOn(False, error.results)
        except FusecError as error:
            return _GoneOn(False, error=error)
        except (Skip, ValueError):
            return _GoneOn(False)
        return _GoneOn(True)

    def _labels(self, line: OpLine, builder: GraphBuilder) -> list[str]:
        """Return the names of the results, with a separate one for each `_`."""
        labels: list[str] = []
        for position, name in enumerate(line.names):
            label = label_of(name.text, position)
            labels.append(builder.fresh_name(label) if name.text == UNUSED else label)
        return labels

    # -- outputs

    def _outputs(self, node: YamlNode, builder: GraphBuilder) -> None:
        self.scope.later = {}
        entries: list[tuple[Scalar, YamlNode | None]] = []
        if isinstance(node, Mapping):
            entries = [(e.key, e.value) for e in node.entries]
        for item in node.items if isinstance(node, Listing) else ():
            if isinstance(item, Scalar):
                entries.append((item, None))
            elif isinstance(item, Mapping) and len(item.entries) == 1:
                entries.append((item.entries[0].key, item.entries[0].value))
            else:
                with self.problems.collect():
                    raise fields.wrong(item, "the name of an output", OUTPUTS_HELP)
        if isinstance(node, Scalar):
            words = re.findall(r"\w+", node.text)
            named = bool(words) and re.fullmatch(r"[\w\s,()]+", node.text) is not None
            help = f"write `outputs: [{', '.join(words)}]`" if named else OUTPUTS_HELP
            raise fields.wrong(node, "a list of outputs", help)
        typed = [k.text for k, v in entries if isinstance(v, Scalar) and not fields.is_empty(v)]
        if typed and len(typed) == len(entries):
            first = entries[0][1]
            assert first is not None
            help = f"types follow from the operations: write `outputs: [{', '.join(typed)}]`"
            raise fields.wrong(first, "the options of an output", help)
        if not entries:
            self.problems.check()
            raise FusecError(
                "the fusion has no outputs", span=node.span, help=OUTPUTS_HELP, code=NO_OUTPUTS
            )
        for key, options in entries:
            with self.problems.collect(key.span):
                self._output(key, options, builder)

    def _output(self, key: Scalar, options: YamlNode | None, builder: GraphBuilder) -> None:
        value = self._value(key, "an output")
        alias, order, given = None, None, None
        if options is not None and not fields.is_empty(options):
            given = fields.mapping(options, "the options of an output", OUTPUTS_HELP)
            known = ("alias", "stride_order", *SHARDING_FIELDS)
            fields.check_fields(given, known, f"output `{key.text}`")
            target, order_node = given.get("alias"), given.get("stride_order")
            if target is not None:
                alias = self._alias(target, builder)
            if order_node is not None:
                order = stride_order(order_node, len(value.type.shape or ()))
        try:
            made = builder.output(value, alias=alias, stride_order=order, span=key.span)
        except FusecError as error:
            if alias is None or not isinstance(value, Value):
                raise
            types = (builder.resolve(value).type, builder.resolve(alias).type)
            raise with_cast(error, self.lines, key.text, types) from None
        if given is not None:
            self.divided.read(key.text, made, given, key.span)

    def _alias(self, node: YamlNode, builder: GraphBuilder) -> Value:
        fields.text(node, "the name of an input")
        assert isinstance(node, Scalar)
        own = next((v for v in self.inputs if v.name == node.text), None)
        value = own or self._value(node, "an alias")  # lines below may give a name another value
        if not isinstance(value, Value) or value not in self.inputs:
            raise FusecError(
                f"`{node.text}` is not an input",
                span=node.span,
                help="an output can only alias an input",
                code=ALIAS_NOT_AN_INPUT,
            )
        return value

    def _unread(self) -> str | None:
        """Return the only result that no op line and no output reads; None if there are several."""
        used = {name for read in self.scope.uses.values() for name in read} | {*self.read_last}
        names = [n.text for line in self.lines for n in line.names]
        unread = [name for name in names if name != UNUSED and name not in used]
        unknown = [name for name in self.read_last if not self.scope.knows(name)]
        return unread[0] if len(unread) == 1 == len(unknown) else None

    def _value(self, key: Scalar, what: str) -> Operand:
        otherwise = f"no line defines {what} of this name"
        parts = key.text.split()
        if len(parts) > 1 and all(map(self.scope.knows, parts)):
            otherwise = f"a comma is missing: write `{', '.join(parts)}`"
        elif arrow := re.fullmatch(r"(\w+)\s*(?:->|=>|=|:)\s*(\w+)", key.text):
            alias = f"`- {arrow[1]}: {{alias: {arrow[2]}}}`"
            otherwise = f"to write an output into an input write {alias}"
        elif not re.fullmatch(r"[\w.]+", key.text):
            otherwise = (
                f"outputs are names: write `- y_2 = {key.text}` under `ops:`, and `y_2` here"
            )
        elif what == "an output":
            unread = self._unread()
            if unread is None or sum(not self.scope.knows(n) for n in self.read_last) > 1:
                otherwise += f": add `- {key.text} = ...` under `ops:`, or remove it here"
            else:
                otherwise += f"; `{unread}` is computed and not read: write `{unread}`"
        found = self.scope.find(key.text, key.span, otherwise)
        if isinstance(found, (Value, Const)):
            return found
        raise FusecError(
            f"`{key.text}` is a dim: {what} must be a value",
            span=key.span,
            help="the caller knows it: remove it",
            code=DIM_AS_VALUE,
        )


def _with_next_error(error: FusecError, again: FusecError, line: OpLine) -> FusecError:
    """Return the error of a line whose suggested line is wrong, too, with that line's error."""
    wrong, also = error.diagnostic, again.diagnostic
    if wrong.help is None or line_text(line) not in wrong.help or again.code is UNDEFINED_NAME:
        return error
    if again.guess is not None:
        rest = wrong.help.partition(line_text(line))[2]
        return error.changed(help=f"{also.help}{rest}", guess=again.guess)
    help = f"; {also.help}" if also.help is not None and also.help not in wrong.help else ""
    return error.changed(notes=(*wrong.notes, f"in the line to write: {also.message}{help}"))


def _with_hints(fusion: Fusion, hints: MappingOf[str, int]) -> Fusion:
    """Return the fusion with other planned sizes of run-time strides."""
    if not hints:
        return fusion
    known = {d.name for d in fusion.dims}
    for name in hints:
        if name not in known:
            raise FusecError(f"no input has the run-time stride `{name}`")
    dims = tuple(replace(d, default=hints.get(d.name, d.default)) for d in fusion.dims)
    check_layouts(fusion, {d.name: d.default for d in dims})
    return replace(fusion, dims=dims)
