"""The first half of the builder: dims, inputs, names, and the current values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

from fusec.codes.unsupported import STORED_TYPE
from fusec.diagnostics import FusecError, InternalError, Span, Unsupported
from fusec.ir.dim import Dim, DimLike, dim, symbol
from fusec.ir.dtype import DType
from fusec.ir.graph import Const, DimFact, Input, Operand, Type, Value
from fusec.ops.builder.bindings import Bindings
from fusec.ops.builder.layout import strides_of
from fusec.ops.builder.wording import Declaration
from fusec.ops.limits import check_layout
from fusec.ops.names import check_name
from fusec.ops.shapes import described


def check_dtype(dtype: DType, span: Span | None = None) -> None:
    """Raise Unsupported for element types that are known only by name."""
    if dtype.name in ("f4e2m1", "f8e8m0"):
        raise Unsupported(f"tensors of {dtype.name} ({dtype.long})", span=span, code=STORED_TYPE)


class InputBuilder:
    """Manages dims, inputs and values; a value is a slot whose name and type may still change."""

    def __init__(self, name: str) -> None:
        """Start without values."""
        check_name(name, "fusion")
        self.bindings = Bindings()
        self._slots: list[Value] = []
        self._slot_of: dict[Value, int] = {}
        self._spans: list[Span | None] = []
        self._names: dict[str, int] = {}
        self._dims: dict[str, DimFact] = {}
        self._inputs: list[Input] = []
        self._counters: dict[str, int] = {}
        self._generated: set[str] = set()
        self._orders: dict[int, tuple[int, ...]] = {}
        self._input_orders: dict[str, tuple[int, ...]] = {}
        self.size_operands: dict[Dim, Operand] = {}
        """Results of `operand_of_size`."""

    def declare_dim(
        self,
        name: str,
        default: int,
        *,
        multiple_of: int = 1,
        anonymous: bool = False,
        buckets: Sequence[int] = (),
        span: Span | None = None,
    ) -> Dim:
        """Declare a named size and return its symbol."""
        self._claim(name, "dim", span)
        if not 0 <= default < 2**63:
            raise FusecError(f"dim `{name}`: {default} is not a size", span=span)
        if multiple_of < 1 or default % multiple_of:
            raise FusecError(
                f"dim `{name}`: the default {default} is not a multiple of {multiple_of}", span=span
            )
        self._dims[name] = DimFact(name, default, multiple_of, anonymous, tuple(buckets))
        if multiple_of > 1:
            self.bindings.multiples[name] = multiple_of
        if anonymous:
            self.bindings.add(name)
        return symbol(name)

    def assume(self, declared: Declaration | None) -> Callable[[], None]:
        """Assume that a dim is declared differently; return a function that undoes this."""
        dims, restore = dict(self._dims), self.bindings.assume(declared)
        if declared is not None and declared.spare:
            self._dims[declared.spare] = DimFact(declared.spare, declared.spare_default)

        def undo() -> None:
            self._dims = dims
            restore()

        return undo

    def make_constant(self, name: str, span: Span | None = None) -> None:
        """Make a declared dim a constant of its default size; others are unchanged."""
        fact = self._dims.get(name)
        if fact is None or name in self.bindings.bound:
            return
        if fact.buckets:
            raise FusecError(
                f"dim `{name}` is a constant (no input uses it) and cannot have buckets",
                span=span,
                help=f"remove `buckets`, and compile once per value with `--set {name}=...`",
            )
        self.bindings.fix(name, fact.default)

    def anonymous_dim(self, hint_name: str, default: int) -> Dim:
        """Return a new symbol for a `-1` of a script; it is unified with the extents it meets."""
        return self.declare_dim(self.fresh_name(hint_name), default, anonymous=True)

    def input(
        self,
        name: str,
        dtype: DType,
        shape: Sequence[DimLike] | None,
        *,
        strides: Sequence[DimLike] | None = None,
        contiguity: Sequence[bool | None] | None = None,
        stride_order: Sequence[int] | None = None,
        low: float | None = None,
        high: float | None = None,
        default: bool | int | float | complex | None = None,
        on_cpu: bool = False,
        span: Span | None = None,
        layout_span: Span | None = None,
    ) -> Value:
        """Declare an input; `shape` None makes it a scalar. The default layout is dense."""
        self._claim(name, "input", span)
        check_dtype(dtype, span)
        if shape is None:
            return self._scalar_input(name, dtype, default, low, high, span)
        sizes = tuple(self.bindings.size(dim(d)) for d in shape)
        if on_cpu and sizes:
            raise FusecError(f"input `{name}`: only a 0-dim tensor may be in CPU memory", span=span)
        if strides is not None and len(strides) != len(sizes):
            raise FusecError(
                f"input `{name}` has {len(sizes)} dims and {len(strides)} strides", span=span
            )
        try:
            layout = (
                strides_of(sizes, contiguity, stride_order, lambda a, d: self._stride(name, a, d))
                if strides is None
                else tuple(self.bindings.size(dim(s)) for s in strides)
            )
        except FusecError as error:
            raise error.at(span) from None
        value = Value(name, Type(dtype, sizes))
        entry = Input(value, layout, low, high, None, on_cpu, span)
        if strides is not None and self._known(*sizes, *layout):
            try:
                check_layout(entry, self.hints)
            except FusecError as error:
                raise error.at(layout_span or span) from None
        self._enter(value, span)
        self._inputs.append(entry)
        if stride_order:
            self._input_orders[name] = tuple(stride_order)
        return value

    def prefer_order(self, value: Operand, stride_order: tuple[int, ...]) -> None:
        """Give a value this memory order if it becomes an output without one."""
        if isinstance(value, Value):
            self._orders[self._slot_of[self._value(value)]] = stride_order

    def preferred_order(self, value: Value) -> tuple[int, ...] | None:
        """Return the stride order that an input or `prefer_order` declares; None if row-major."""
        slot = self._slot_of[self._value(value)]
        return self._orders.get(slot, self._input_orders.get(value.name))

    def _known(self, *sizes: Dim) -> bool:
        """Return whether all symbols are declared: scalars of a script may come later."""
        return all(name in self._dims for size in sizes for name in size.symbols)

    def _scalar_input(
        self,
        name: str,
        dtype: DType,
        default: bool | int | float | complex | None,
        low: float | None,
        high: float | None,
        span: Span | None,
    ) -> Value:
        known = symbol(name, extent=False) if dtype.is_integer else None
        value = self._enter(Value(name, Type(dtype, None, known)), span)
        if known is not None:
            whole = int(default) if isinstance(default, (int, float)) else 1
            self._dims[name] = DimFact(name, whole)
        self._inputs.append(Input(value, (), low, high, default, False, span))
        return value

    def _stride(self, name: str, axis: int, dense: Dim) -> Dim:
        label = f"{name}.stride{axis}"
        self._dims[label] = DimFact(label, self.bindings.size(dense).evaluate(self.hints))
        return symbol(label)

    def _facts(self) -> tuple[DimFact, ...]:
        """Return the facts of all dims in the order in which the text form declares them.

        Named dims first, then by input the values of scalars, and strides from the last dim to the
        first: kernels take sizes in this order.
        """
        number = {entry.value.name: k for k, entry in enumerate(self._inputs)}

        def place(fact: DimFact) -> tuple[int, int]:
            owner, _, stride = fact.name.partition(".stride")
            return number.get(owner, -1), -int(stride or 0)

        kept = (f for f in self._dims.values() if f.name not in self.bindings.bound)
        return tuple(sorted(kept, key=place))

    @property
    def dims(self) -> Mapping[str, DimFact]:
        """Return the dims declared by name so far."""
        return {n: f for n, f in self._dims.items() if not f.anonymous and "." not in n}

    @property
    def hints(self) -> Mapping[str, int]:
        """Return the default size of every symbol declared so far."""
        return {fact.name: fact.default for fact in self._dims.values()}

    def fresh_name(self, base: str) -> str:
        """Return `base` if it is free, else the first free of `base_2`, `base_3`, ...

        If the user later chooses the name for another value, this value is renamed.
        """
        if not self._is_free(base):
            return self._numbered(base, 2)
        self._generated.add(base)
        return base

    def _numbered(self, base: str, first: int = 1) -> str:
        count = self._counters.get(base, first)
        while not self._is_free(f"{base}_{count}"):
            count += 1
        self._counters[base] = count
        self._generated.add(f"{base}_{count}")
        return f"{base}_{count}"

    def _is_free(self, name: str) -> bool:
        return name not in self._names and name not in self._dims

    def _claim(self, name: str, what: str, span: Span | None) -> None:
        check_name(name, what, span)
        if name in self._generated:
            self._give_way(name)
        if not self._is_free(name):
            slot = self._names.get(name)
            old = None if slot is None else self._spans[slot]
            notes = [f"first defined at {old.place()}"] if old is not None else []
            raise FusecError(f"`{name}` is defined twice", span=span, notes=notes)

    def _give_way(self, name: str) -> None:
        """Rename a node's result with a generated name, since the user now needs the name."""
        value = self.find_value(name)
        if value is not None and name not in {i.value.name for i in self._inputs}:
            self._generated.discard(name)
            self.rename(value, self._numbered(name, 2))

    def _enter(self, value: Value, span: Span | None) -> Value:
        slot = len(self._slots)
        self._slots.append(value)
        self._spans.append(span)
        self._slot_of[value] = slot
        self._names[value.name] = slot
        return value

    def _current(self, slot: int) -> Value:
        value = self._slots[slot]
        now = self.bindings.type(value.type)
        return value if now is value.type else self._replace(slot, Value(value.name, now))

    def _replace(self, slot: int, value: Value) -> Value:
        self._slots[slot] = value
        self._slot_of[value] = slot
        return value

    def _value(self, value: Value) -> Value:
        slot = self._slot_of.get(value)
        if slot is None:
            raise InternalError(f"value `{value.name}` belongs to another fusion")
        return self._current(slot)

    def resolve(self, value: Operand) -> Operand:
        """Return the current form of a value, after unifications and renamings."""
        return value if isinstance(value, Const) else self._value(value)

    @property
    def inputs(self) -> Sequence[Input]:
        """Return the inputs in order of declaration."""
        return self._inputs

    @property
    def input_values(self) -> Iterator[Value]:
        """Yield the current values of the inputs."""
        return (self._value(entry.value) for entry in self._inputs)

    def find_value(self, name: str) -> Value | None:
        """Return the value now called `name`."""
        slot = self._names.get(name)
        return None if slot is None else self._current(slot)

    def rename(self, value: Value, name: str, *, span: Span | None = None) -> Value:
        """Rename the result of a node and return it."""
        old = self._value(value)
        if old.name == name:
            return old
        self._claim(name, "value", span)
        slot = self._slot_of[old]
        if any(self._slot_of[i.value] == slot for i in self._inputs):
            raise FusecError(f"input `{old.name}` cannot be renamed", span=span)
        del self._names[old.name]
        self._names[name] = slot
        self._spans[slot] = span or self._spans[slot]
        return self._replace(slot, Value(name, old.type))

    def _placed(self, error: FusecError, given: Sequence[object], span: Span | None) -> FusecError:
        """Return the error at a call, with the shapes and origins of its operands."""
        if error.diagnostic.span is not None or span is None:
            return error
        old, notes = error.diagnostic, list(error.diagnostic.notes)
        slots = dict.fromkeys(self._slot_of[v] for v in _values(given) if v in self._slot_of)
        values = [self._current(slot) for slot in slots]
        message = "; ".join([old.message, *notes])
        if untold := [v for v in values if f"{v.name} is {v.type}" not in message]:
            notes.append(described(untold))
        for slot, value in zip(slots, values, strict=True):
            where = self._spans[slot]
            if where is not None:
                notes.append(f"`{value.name}` is defined at {where.place()}")
        return error.changed(span=span, notes=notes)


def _values(given: Sequence[object]) -> Iterable[Value]:
    for item in given:
        if isinstance(item, Value):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from _values(cast("Sequence[object]", item))
