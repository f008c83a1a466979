"""The DSL twin of a fusion: a Python script that defines the same graph."""

from __future__ import annotations

import keyword
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from fusec.diagnostics import Unsupported
from fusec.escape import quoted, visible
from fusec.ir.annotations import Setting
from fusec.ir.dim import Call, Dim, Symbol
from fusec.ir.dtype import BOOL, C128, F64, I64, DType
from fusec.ir.graph import DimFact, Fusion, Input, Node, Operand, Value
from fusec.ir.sharding import STREAM, Parts
from fusec.ir.sharding_text import DEFAULT_AXES
from fusec.ops.builder.arguments import written_attributes
from fusec.ops.builder.layout import strides_of
from fusec.parse.dsl.datatype import of_dtype
from fusec.parse.dsl.lists import is_list
from fusec.parse.twin_draws import unseeded_draws

_OWN_NAMES = frozenset(
    {"fd", "FusionDefinition", "DataType", "ceildiv", "maximum", "minimum", "complex", "float"}
)
_WIDTH = 100


def to_python(fusion: Fusion) -> str:
    """Return a script that defines `fusion`; loading it gives an equal fusion."""
    writer = _Writer(fusion)
    body = [*writer.declarations(), *writer.nodes(), *writer.ends()]
    functions = sorted({"DataType", "FusionDefinition", *writer.imports})
    head = [
        *([_docstring(fusion.doc), ""] if fusion.doc else []),
        f"from fusec import {', '.join(functions)}",
        "",
        f"with {writer.opening()} as fd:",
    ]
    return "\n".join([*head, *(f"    {line}" for text in body for line in text.split("\n"))]) + "\n"


def _docstring(text: str) -> str:
    doubled = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    safe = "\n".join(map(visible, doubled.split("\n")))
    return f'"""{safe}{" " if safe.endswith(chr(34)) else ""}"""'


class _Writer:
    """Writes the lines of one script, and records which helpers it must import."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.imports: set[str] = set()
        self._draws = unseeded_draws(fusion)
        self._scalars = {i.value.name for i in fusion.inputs if i.value.is_scalar}
        taken = fusion.names
        self._declared: set[str] = set()
        self._names: dict[str, str] = {}
        for name in sorted(taken):
            clashes = name in _OWN_NAMES or keyword.iskeyword(name)
            self._names[name] = _free(name, taken) if clashes else name

    def name(self, name: str) -> str:
        """Return the Python variable of a value or dim."""
        return self._names.get(name, name)

    def opening(self) -> str:
        return f'FusionDefinition("{self.fusion.name}")'

    def declarations(self) -> Iterable[str]:
        strides = [f for f in self.fusion.dims if "." in f.name]
        for fact in self.fusion.dims:
            if "." not in fact.name and fact.name not in self._scalars:
                yield self._dim(fact)
        for entry in self.fusion.inputs:
            if not entry.generator:
                yield self._input(entry)
            elif not self._draws.nodes:
                options = [f'"{entry.generator}"', f'name="{entry.value.name}"']
                yield _call(f"{self.name(entry.value.name)} = fd.define_generator", options)
        for fact in strides:
            yield f'fd.set_hint("{fact.name}", {fact.default})'

    def _dim(self, fact: DimFact) -> str:
        options = [f"{fact.name!r}", str(fact.default)]
        if fact.multiple_of != 1:
            options.append(f"multiple_of={fact.multiple_of}")
        if fact.buckets:
            options.append(f"buckets={list(fact.buckets)}")
        if fact.anonymous:
            options.append("anonymous=True")
        return f"{self.name(fact.name)} = fd.define_dim({', '.join(options)})".replace("'", '"')

    def _input(self, entry: Input) -> str:
        value = entry.value
        variable = self.name(value.name)
        options: list[str] = []
        if not value.is_scalar:
            options.append(f"shape={self._sizes(value.shape)}")
            options += self._layout(entry)
        options.append(f"dtype={of_dtype(value.dtype)!r}")
        if entry.on_cpu:
            options.append("is_cpu=True")
        if entry.default is not None:
            options.append(f"default={_number(entry.default)}")
        if entry.low is not None or entry.high is not None:
            options.append(f"range=({_number(entry.low)}, {_number(entry.high)})")
        if variable != value.name:
            options.append(f'name="{value.name}"')
        self._declared.add(value.name)
        method = "define_scalar" if value.is_scalar else "define_tensor"
        return _call(f"{variable} = fd.{method}", options)

    def _layout(self, entry: Input) -> list[str]:
        shape, strides = entry.value.shape, entry.strides
        if not shape:
            return []
        for order in _orders(entry):
            flags = [_flag(entry, order.index(p)) for p in reversed(range(len(shape)))]

            def fresh(axis: int, _: Dim, known: Sequence[Dim] = strides) -> Dim:
                return known[axis]

            if strides_of(shape, flags, order, fresh) == strides:
                plain = list(order) == list(range(len(shape) - 1, -1, -1))
                contiguity = "True" if all(f is True for f in flags) else str(flags)
                shown = [] if plain else [f"stride_order={list(order)}"]
                return [f"contiguity={contiguity}", *shown]
        if any("." in s for stride in strides for s in stride.symbols):
            raise Unsupported(f"the strides of `{entry.value.name}` in a script")
        return [f"strides={self._sizes(strides)}"]

    def nodes(self) -> Iterable[str]:
        return (self._node(n) for n in self.fusion.nodes if n not in self._draws.numbers)

    def _node(self, node: Node) -> str:
        targets = ", ".join(self.name(v.name) for v in node.outputs)
        if len(node.outputs) == 1 and node.op.name == "shape":
            targets += ","
        arguments: list[str] = []
        given = node.operands[:2] if node in self._draws.nodes else node.operands
        operands = iter(given)
        left = len(given) - sum(p.kind == "operand" for p in node.op.operands)
        written = written_attributes(node.op, node.attributes)
        by_name = False
        for param in node.op.params:
            if param.kind == "operands":
                text = f"[{', '.join(self.operand(o) for o in operands)}]"
            elif param.kind == "optional":
                if left <= 0:
                    continue
                left -= 1
                text = self.operand(next(operands))
            elif param.kind == "operand":
                text = self.operand(next(operands))
            elif param.name in written:
                by_name = True
                text = self.attribute(written[param.name])
            else:
                continue
            arguments.append(f"{param.name}={text}" if by_name else text)
        return _call(f"{targets} = fd.ops.{_method(node.op.name)}", arguments)

    def operand(self, operand: Operand) -> str:
        """Return an operand: a variable, a number, or a number with its type."""
        if isinstance(operand, Value):
            return self.name(operand.name)
        text = _number(operand.value)
        if operand.dtype in (BOOL, I64, F64, C128):
            return text
        return f"fd.define_scalar({text}, dtype={of_dtype(operand.dtype)!r})"

    def attribute(self, value: Any) -> str:
        """Return an attribute as a Python expression."""
        if isinstance(value, Dim):
            return self.size(value)
        if isinstance(value, DType):
            return repr(of_dtype(value))
        if is_list(value):
            return f"[{', '.join(self.attribute(v) for v in value)}]"
        return _number(value) if isinstance(value, float) else repr(value)

    def _sizes(self, sizes: Iterable[Dim]) -> str:
        return f"[{', '.join(self.size(s) for s in sizes)}]"

    def size(self, size: Dim) -> str:
        """Return a size as a Python expression of dims."""
        if not size.terms:
            return "0"
        text = ""
        for monomial, coefficient in size.terms:
            factors = [self._atom(a) for a in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.append(str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            body = " * ".join(factors)
            text += f" {sign} {body}" if text else body if coefficient > 0 else f"-{body}"
        return text

    def _atom(self, atom: Symbol | Call) -> str:
        if isinstance(atom, Symbol):
            name = self.name(atom.name)
            if atom.name in self._scalars:
                return f"{name}.dim" if atom.name in self._declared else f'fd.size_of("{name}")'
            return name
        left, right = self.size(atom.left), self.size(atom.right)
        infix = {"floordiv": "//", "mod": "%"}.get(atom.function)
        if infix is not None:
            return f"(({left}) {infix} ({right}))"
        function = {"min": "minimum", "max": "maximum", "ceildiv": "ceildiv"}[atom.function]
        self.imports.add(function)
        return f"{function}({left}, {right})"

    def ends(self) -> Iterable[str]:
        for pin in self.fusion.pins:
            values = ", ".join(self.name(v) for v in pin.values)
            scheduler = [f"scheduler={quoted(pin.scheduler)}"] if pin.scheduler else []
            grows = ["open=True"] if pin.open else []
            yield _call("fd.pin", [quoted(pin.name), f"[{values}]", *scheduler, *grows])
        for of in dict.fromkeys(o.of for o in self.fusion.schedules):
            own = (o for o in self.fusion.schedules if o.of == of)
            fields = (f"{o.name}={_setting(o.value)}" for o in own)
            yield _call("fd.schedule", [quoted(of), *fields])
        if self.fusion.boundaries != "free":
            yield "fd.explicit_boundaries()"
        for output in self.fusion.outputs:
            options = [self.name(output.value.name)]
            if output.alias is not None:
                options.append(f"alias_input={self.name(output.alias)}")
            if output.stride_order is not None:
                options.append(f"stride_order={list(output.stride_order)}")
            yield f"fd.add_output({', '.join(options)})"
        yield from self._divided()

    def _divided(self) -> Iterable[str]:
        mesh = self.fusion.mesh
        if mesh is not None:
            named = {quoted(name): size for name, size in mesh.axes}
            text = f"{{{', '.join(f'{name}: {size}' for name, size in named.items())}}}"
            plain = tuple(name for name, _ in mesh.axes) in DEFAULT_AXES
            yield f"fd.set_mesh({list(mesh.shape) if plain else text})"
        for name, sharding in self.fusion.shardings.items():
            dims = (
                f"{k}: {self._factors(parts)}" for k, parts in enumerate(sharding.dims) if parts
            )
            ranks = [] if sharding.ranks is None else [f"ranks={list(sharding.ranks)}"]
            yield _call("fd.shard", [self.name(name), f"{{{', '.join(dims)}}}", *ranks])

    def _factors(self, parts: Parts) -> str:
        texts = [
            quoted(part.axis)
            if part.axis not in (None, STREAM)
            else f"{{{quoted(part.axis or 'whole')}: {self.size(part.parts)}}}"
            for part in parts
        ]
        return texts[0] if len(texts) == 1 and parts[0].axis else f"[{', '.join(texts)}]"


def _call(head: str, arguments: Sequence[str]) -> str:
    """Return a call on one line, or with its arguments on several lines if it is too long."""
    line = f"{head}({', '.join(arguments)})"
    if len(line) + 4 <= _WIDTH:
        return line
    return "\n".join([f"{head}(", *(_wrapped(f"{a},") for a in arguments), ")"])


def _wrapped(argument: str) -> str:
    """Return an argument on a line of its own; a long list continues below its first element."""
    inner = " " * (4 + argument.find("[") + 1)
    short = len(argument) <= _WIDTH - 8
    return f"    {argument}" if short else textwrap.fill(
        argument, _WIDTH - 4, initial_indent="    ", subsequent_indent=inner,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _setting(value: Setting) -> str:
    return quoted(value) if isinstance(value, str) else repr(value)


def _method(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _free(name: str, taken: set[str]) -> str:
    candidate = f"{name}_"
    while candidate in taken or keyword.iskeyword(candidate):
        candidate += "_"
    return candidate


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):
        parts = value.real, value.imag
        if any(not math.isfinite(p) or str(p) == "-0.0" for p in parts):
            # The output of `repr` would be parsed as a sum.
            return f"complex({', '.join(map(_number, parts))})"
    return repr(value)


def _flag(entry: Input, axis: int) -> bool | None:
    stride = entry.strides[axis]
    return None if stride == 0 else str(stride) != f"{entry.value.name}.stride{axis}"


def _orders(entry: Input) -> Iterable[list[int]]:
    """Yield stride orders to try: row-major, then the one suggested by the strides."""
    rank = entry.value.rank
    yield list(range(rank - 1, -1, -1))
    # From the fastest: a unit or unknown stride first, then the stride that is the product so far.
    left, found = list(range(rank)), list[int]()
    dense: Dim | int = 1
    while left:
        fits = [a for a in reversed(left) if entry.strides[a] == dense]
        unknown = [a for a in reversed(left) if _flag(entry, a) is False]
        axis = (fits or unknown or left[::-1])[0]
        left.remove(axis)
        found.append(axis)
        if entry.strides[axis] != 0:
            dense = entry.strides[axis] * entry.value.shape[axis]
    yield [found.index(axis) for axis in range(rank)]
