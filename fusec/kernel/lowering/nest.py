"""Scopes, index expressions and statements of a loop nest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import reduce
from operator import mul

from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import FusecError, InternalError
from fusec.index.access import Facts, vector_base
from fusec.ir.access import Condition, Conditions
from fusec.ir.dim import Dim
from fusec.ir.expression import Atom, Index, Loaded, Quotient, Var, index
from fusec.kernel.ctext import dim_text, identifier, index_type
from fusec.kernel.names import Names
from fusec.kernel.nodes import (
    BINARY,
    INT,
    TRUE,
    ZERO,
    Binary,
    Cast,
    Expression,
    If,
    Integer,
    Let,
    Loop,
    Name,
    Pointer,
    Statement,
    Sum,
    Type,
    both,
    grouped,
    operand,
)

FILL, COLUMNS, RESULTS, EDGE_LOADS, EDGES = 1000, 2000, 3000, 4000, 5000
"""Numbers of further loops of phase 0, each phase has its own: the loop that fills the on-chip
copies, the one that computes values that depend only on columns, the one that stores their results;
the loads of a thread's single element next to unaligned vectors, and the work on it."""

LEAST_NAMED = 16
"""Smaller sizes are written as numbers: 2 or 0.5 need not come from a size that happens to be 2."""


def named(**sizes: Dim) -> Mapping[int, str]:
    """Return the names of known sizes by their values; the first of equal ones."""
    known = {n: d.value for n, d in reversed(sizes.items()) if d.is_const}
    return {value: name for name, value in known.items() if value >= LEAST_NAMED}


def block(test: Expression, body: Iterable[Statement]) -> tuple[Statement, ...]:
    """Return statements under a test; an empty body needs no block."""
    inside = tuple(body)
    return (If(test, inside),) if inside else ()


def unrolled(variable: str, end: str, body: Iterable[Statement]) -> tuple[Statement, ...]:
    """Return an unrolled loop from 0; empty if there is no body."""
    inside = tuple(body)
    return (Loop(variable, operand(end), inside),) if inside else ()


@dataclass(frozen=True)
class Scope:
    """A level of a loop nest: the loop variables that it binds.

    per_phase: whether its statements are lost between phases (a loop body) or stay (a row, the
    kernel). hoists: for the scope of vectors, whether vectors that are invariant in its loop are
    loaded in an enclosing scope.
    """

    name: str
    variables: frozenset[Var]
    per_phase: bool = True
    hoists: bool = False


class StoreKind(Enum):
    """How a store stays within its output if threads or tiles may exceed the end.

    STAGED: into rows in shared memory, which are copied within the output's bounds. GUARDED: under
    a test that fails past the end. EXACT: no thread reaches an index past the end.
    """

    STAGED = "staged"
    GUARDED = "guarded"
    EXACT = "exact"


@dataclass(frozen=True)
class Alias:
    """How a loop variable is written: variable = text / scale, where `text` is a C variable."""

    text: str
    scale: int = 1

    @property
    def variable(self) -> Expression:
        """Return the C variable."""
        return operand(self.text)


@dataclass
class Nest:
    """The statements of each (phase, scope) of a loop nest, and the names of its indices.

    scopes: outermost first; lane: the variable of the elements of a vector, bound by the last
    scope; aliases: how loop variables are written; wide: whether indices have 64 bits; width_name:
    the constant of a vector's width; symbols: constants of the kernel by their value, such as
    strides; counts: those of how many elements are summed; guard: a test for stores if rows or
    columns may exceed the end; in_range: a test that fails in threads past the end, which repeat
    the last row or column (the guard if it is empty); stored_under: the test with which the
    template itself excludes threads past the end from stores; written: names of buffers that the
    kernel overwrites, never read through the non-coherent path; part: for unaligned vectors, the
    first of their elements within the row, and how many there are.
    """

    scopes: tuple[Scope, ...]
    names: Names
    facts: Facts
    lane: Var | None = None
    width: int = 1
    aliases: Mapping[Var, Alias] = field(default_factory=dict[Var, Alias])
    wide: bool = False
    width_name: str = "kVec"
    guard: str = ""
    in_range: str = ""
    stored_under: Expression | str = ""
    written: frozenset[str] = frozenset()
    part: tuple[Expression, ...] = ()
    symbols: Mapping[int, str] = field(default_factory=dict[int, str])
    counts: Mapping[int, str] = field(default_factory=dict[int, str])
    lines: dict[tuple[int, str], list[Statement]] = field(
        default_factory=dict[tuple[int, str], list[Statement]]
    )
    _last: dict[tuple[int, str], list[Statement]] = field(
        default_factory=dict[tuple[int, str], list[Statement]]
    )
    _atoms: dict[tuple[int, Atom], Expression] = field(
        default_factory=dict[tuple[int, Atom], Expression]
    )

    def loaded(self, atom: Loaded, phase: int) -> Expression:
        """Return a loaded integer; a nest without values has none."""
        raise InternalError(f"no value is emitted for the index {atom} in phase {phase}")

    def take(self, phase: int, scope: str) -> tuple[Statement, ...]:
        """Return the statements of a phase's scope."""
        place = phase, scope
        return (*self.lines.get(place, ()), *self._last.get(place, ()))

    def add(self, phase: int, scope: str, line: Statement, *, last: bool = False) -> None:
        """Append a statement; `last`: after all statements without it."""
        lines = self._last if last else self.lines
        lines.setdefault((phase, scope), []).append(line)

    @property
    def element_of_vector(self) -> Expression:
        """Return the index of the current element within its vector."""
        return ZERO if self.lane is None else Name(self.lane.name)

    @property
    def index_type(self) -> Type:
        """Return the C type of indices."""
        return index_type(wide=self.wide)

    @property
    def store_test(self) -> Expression | str:
        """Return the test that keeps threads past the end from storing; empty if there are none."""
        inside = self.part[0] if self.part else ""
        return self.guard or self.stored_under or self.in_range or inside

    @property
    def store_kind(self) -> StoreKind:
        """Return how a store that is not staged stays inside its output."""
        return StoreKind.GUARDED if self.store_test else StoreKind.EXACT

    def check_store(self, name: str, kind: StoreKind) -> None:
        """Assert that an output's direct stores are as planned: guarded, or exact."""
        own = self.store_kind
        assert kind is own, f"`{name}` is planned as {kind.value}, stored as {own.value}"

    def lanes(self, lines: Iterable[Statement]) -> tuple[Statement, ...]:
        """Return statements for each element of a vector."""
        if self.lane is None:
            return tuple(lines)
        return unrolled(self.lane.name, self.width_name, lines)

    def statements(self, phase: int, *, guarded: bool = True) -> tuple[Statement, ...]:
        """Return a phase's work on a vector: loads, elements, stores where the guard holds."""
        stores = self.take(phase, "after")
        return (
            *self.take(phase, self.scopes[-2].name),
            *self.lanes(self.take(phase, "lane")),
            *(block(operand(self.guard), stores) if self.guard and guarded else stores),
        )

    def before(self, phase: int) -> tuple[Statement, ...]:
        """Return the statements outside of the loops of a phase."""
        return tuple(line for s in self.scopes[:-2] for line in self.take(phase, s.name))

    def scope_of(self, variables: frozenset[Var]) -> int:
        """Return the number of the outermost scope in which all variables are bound."""
        bound: frozenset[Var] = frozenset()
        for number, scope in enumerate(self.scopes):
            bound |= scope.variables
            if variables <= bound:
                return number
        raise AssertionError(f"no scope binds {sorted(v.name for v in variables - bound)}")

    def fresh(self, base: str, word: str, phase: int, number: int) -> str:
        """Return a name for a statement of scope `number`; each loop body has its own."""
        shared = not self.scopes[number].per_phase or COLUMNS <= phase < RESULTS
        return self.names.fresh(base, word, None if shared else phase % FILL)

    def _phase_of(self, phase: int, number: int, depth: int) -> int:
        return phase if self.scopes[number].per_phase else depth

    def vector_base(self, address: Index, conditions: Conditions) -> Index | None:
        """Return lane 0's address if the access is one vector, conditions included; else None."""
        if self.lane is None:
            return None
        return vector_base(address, conditions, self.lane, self.width, self.facts)

    def at_lane_zero(self, conditions: Conditions) -> Conditions:
        """Return the conditions of a vector's first element."""
        if self.lane is None:
            return conditions
        zero = {self.lane: index(0)}
        return tuple(Condition(c.position.substitute(zero), c.low, c.end) for c in conditions)

    def pointer(self, buffer: str, address: Index, phase: int) -> Pointer:
        """Return the address of an element of a buffer."""
        return Pointer(Name(identifier(buffer)), self.index(address, phase))

    def index(self, value: Index, phase: int) -> Expression:
        """Return an index; quotients and remainders become named constants."""
        parts: list[Expression] = []
        strides = self._strides(value)
        for atom, coefficient in sorted(value.terms, key=self._outer_first):
            if isinstance(atom, Var):
                parts.append(self._scaled(atom, coefficient, strides))
                continue
            part = self._atom(atom, phase)
            scale = self._factor(coefficient, strides)
            if coefficient == self.width and self._counts_vectors(atom):
                scale = Name(self.width_name)
            parts.append(part if coefficient == 1 else Binary("*", part, scale))
        if value.constant != 0 or not parts:
            parts.append(dim_text(value.constant, wide=self.wide))
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))

    def _outer_first(self, term: tuple[Atom, Dim]) -> int:
        try:
            return -abs(term[1].evaluate(self.facts.hints))
        except FusecError:
            return -(1 << 30)  # a stride that is only known at run time

    def _strides(self, value: Index) -> Mapping[int, Expression]:
        """Return the strides of an index that are constants of the kernel, or products of them.

        A multiple of the next smaller named stride is spelled as one: in a tensor of [batch, M, N]
        these are `M * N` and `N`.
        """
        if self.wide or not self.symbols:
            return {}
        found: dict[int, tuple[Expression, ...]] = {}
        inner = 0
        for stride in sorted({c.value for _, c in value.terms if c.is_const and c.value > 0}):
            if stride in self.symbols:
                found[stride] = (Name(self.symbols[stride]),)
            elif inner in found and stride % inner == 0:
                outer = stride // inner
                name = self.symbols.get(outer)
                # A square has equal extents by chance: its rows are not its columns.
                factor = operand(outer) if name is None or outer == inner else Name(name)
                found[stride] = (factor, *found[inner])
            inner = stride
        return {stride: reduce(mul, factors) for stride, factors in found.items()}

    def _scaled(
        self, variable: Var, coefficient: Dim, strides: Mapping[int, Expression]
    ) -> Expression:
        alias = self.aliases.get(variable, Alias(variable.name))
        found = alias.variable
        if alias.scale != 1:
            exact = coefficient.divide(alias.scale)
            if exact is None:
                width = self.width_name if alias.scale == self.width else alias.scale
                found = Binary("/", found, operand(width))
            else:
                coefficient = exact
        return found if coefficient == 1 else Binary("*", found, self._factor(coefficient, strides))

    def _factor(self, coefficient: Dim, strides: Mapping[int, Expression]) -> Expression:
        """Return a factor of a loop variable, which may be an int if the product is wider.

        strides: the named strides of the index.
        """
        if coefficient.is_const and coefficient.value in strides:
            return strides[coefficient.value]
        if len(coefficient.terms) == 1 and (known := coefficient.terms[0][1]) in strides:
            sizes = coefficient.divide(known)
            assert sizes is not None
            return dim_text(sizes) * strides[known]
        factor = dim_text(coefficient, wide=self.wide)
        is_int = isinstance(factor, Integer) and not factor.suffix
        return replace(factor, suffix="ll") if self.wide and is_int else factor

    def _atom(self, atom: Atom, phase: int) -> Expression:
        assert not isinstance(atom, Var)
        if isinstance(atom, Loaded):
            return self.loaded(atom, phase)
        number = self.scope_of(atom.inner.variables)
        home = self._phase_of(phase, number, 0)
        if (home, atom) not in self._atoms:
            inner = self.index(atom.inner, phase)
            sign, word = ("/", "over") if isinstance(atom, Quotient) else ("%", "mod")
            divisor = dim_text(atom.divisor)
            if not atom.divisor.is_const and not self.wide:  # sizes are passed in 64 bits
                divisor = Cast(INT, divisor)
            base = inner.name if isinstance(inner, Name) else "part"
            known = str(divisor) if isinstance(divisor, Integer | Name) else ""
            tail = known if known.isalnum() else "size"
            name = self.fresh(f"{base}_{word}_{tail}", "part", home, number)
            line = Let(self.index_type, name, Binary(sign, inner, divisor))
            self.add(home, self.scopes[number].name, line)
            self._atoms[(home, atom)] = Name(name)
        return self._atoms[(home, atom)]

    def _counts_vectors(self, atom: Atom) -> bool:
        """Return whether an atom counts vectors."""
        scaled = {v for v, alias in self.aliases.items() if alias.scale == self.width}
        if self.lane is None or self.wide or isinstance(atom, Var | Loaded):
            return False
        return bool(scaled & atom.inner.variables)

    def condition(self, conditions: Conditions, phase: int) -> Expression:
        """Return a test of conditions, without the sides that always hold."""
        tests: list[Expression] = []
        for condition in conditions:
            position = self.index(condition.position, phase)
            least, most = condition.position.bounds
            if least is None or not least.at_least(condition.low):
                tests.append(Binary(">=", position, dim_text(condition.low)))
            if most is None or not (condition.end - 1).at_least(most):
                tests.append(Binary("<", position, dim_text(condition.end)))
        return both(tests) or TRUE

    def load_test(
        self, buffer: str, variables: frozenset[Var], conditions: Conditions, phase: int
    ) -> Expression | None:
        """Return the test under which a load is executed; None if it always is.

        A thread past the end repeats the last row or column. It does not read a buffer that the
        kernel overwrites: the thread that owns the row may already have stored to it. If there is
        only one row, or column, its index is in no address.
        """
        in_range = self.in_range or self.guard
        inside = frozenset[Var]().union(*(scope.variables for scope in self.scopes[1:]))
        repeats = in_range and buffer in self.written and inside & variables
        test = self.condition(conditions, phase) if conditions else None
        if not repeats:
            return test
        if test is None:
            return operand(in_range)
        return Binary("&&", operand(in_range), grouped(test, BINARY["&&"] + 1))
