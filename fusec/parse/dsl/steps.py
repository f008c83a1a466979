"""A definition as steps: performed as they are written, and again once an execution provides sizes.

A `-1` is a symbol while the script defines the fusion. If that is insufficient (a reshape to
constants, a slice of an unknown size), the error is stored, later steps are only recorded, and
`execute` performs all steps again with the sizes of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Fusion, Operand
from fusec.ops.builder.build import GraphBuilder

if TYPE_CHECKING:
    from fusec.parse.dsl.handles import Handle

Sizes = Mapping[tuple[str, int | None], int | float]
"""Known sizes by input and dim; by (name, None) the values of scalars."""


class UnknownValue(FusecError):
    """An attribute is a scalar input whose value only an execution provides."""


@dataclass
class Build:
    """One pass over the steps: the graph so far, and the operand of each handle in it."""

    builder: GraphBuilder
    sizes: Sizes | None = None
    operands: dict[Handle, Operand] = field(default_factory=dict["Handle", Operand])

    def known(self, size: Dim) -> Dim:
        """Return a size with the values of scalar inputs substituted, if they are known."""
        if self.sizes is None:
            return size
        scalars = ((name, v) for (name, axis), v in self.sizes.items() if axis is None)
        return size.substitute({name: dim(v) for name, v in scalars if isinstance(v, int)})

    def value_of(self, scalar: str) -> int | float:
        """Return the value of a scalar input; UnknownValue if no execution has provided it."""
        if self.sizes is None or (scalar, None) not in self.sizes:
            raise UnknownValue(f"the value of `{scalar}` is needed to define the fusion")
        return self.sizes[scalar, None]

    def whole_number(self, scalar: Operand) -> int | None:
        """Return the integer value of a scalar, if an execution has provided its inputs."""
        if self.sizes is None or not scalar.is_scalar:
            return None
        scalars = {name: v for (name, axis), v in self.sizes.items() if axis is None}
        number = self.builder.number_of(scalar, scalars)
        return int(number) if number is not None and float(number).is_integer() else None


class Steps:
    """The steps of one definition and the current pass over them."""

    def __init__(
        self,
        start: Callable[[], GraphBuilder],
        complete: Callable[[Fusion, Build], Fusion] = lambda fusion, _: fusion,
    ) -> None:
        """Start the first pass, in which unknown sizes are symbols; `complete` ends each pass."""
        self._start, self._complete = start, complete
        self._taken: list[Callable[[], None]] = []
        self._fusions: dict[tuple[Any, ...], Fusion] = {}
        self.build = Build(start())
        self.failure: FusecError | None = None
        """The error that requires the sizes of an execution, if any."""

    def declare(self, step: Callable[[], None]) -> None:
        """Perform a step that does not depend on others: an input, a dim, a constant."""
        self._fusions.clear()
        step()
        self._taken.append(step)

    def perform(
        self,
        read: Callable[[], Any],
        apply: Callable[[Any], None],
        guess: Callable[[], None],
        *,
        symbolic: bool,
    ) -> None:
        """Read arguments and apply them; if sizes are unknown, a failure to apply is stored.

        `guess` then provides placeholders for the results.
        """
        self._fusions.clear()
        if self.failure is None:
            self.failure = self._failure(read, apply, symbolic)
        if self.failure is not None:
            guess()
        self._taken.append(lambda: apply(read()))

    def _failure(
        self, read: Callable[[], Any], apply: Callable[[Any], None], symbolic: bool
    ) -> FusecError | None:
        try:
            arguments = read()
        except UnknownValue as error:
            return error
        try:
            apply(arguments)
        except FusecError as error:
            if not symbolic:
                raise
            return error
        return None

    def forget(self) -> None:
        """Build the fusion again when it is next needed."""
        self._fusions.clear()

    @property
    def made(self) -> Fusion | None:
        """Return the fusion with unknown sizes as symbols, if it was built and is up to date."""
        return self._fusions.get(())

    def finish(self, sizes: Sizes | None = None) -> Fusion:
        """Return the fusion, with unknown sizes as symbols or as the constants of `sizes`."""
        key = () if sizes is None else tuple(sizes.items())
        if key not in self._fusions:
            if sizes is not None:
                self.build = Build(self._start(), sizes)
                for step in self._taken:
                    step()
            elif self.failure is not None:
                raise _needs_sizes(self.failure)
            made = self.build.builder.finish()
            self._fusions[key] = self._complete(made, self.build)
        return self._fusions[key]


def _needs_sizes(failure: FusecError) -> FusecError:
    old = failure.diagnostic
    return type(failure)(
        old.message,
        span=old.span,
        notes=old.notes,
        help="pass sizes instead of -1, or inputs: fd.execute(inputs)",
    )


def wants_sizes(fusion: Fusion) -> bool:
    """Return whether shapes contain min or max: slices for which sizes had better be known."""
    return any(
        getattr(atom, "function", "") in ("min", "max")
        for value in fusion.values
        for size in value.shape
        for atom in size.atoms()
    )


def guess_rank(name: str, given: Mapping[str, Any], ranks: Sequence[int]) -> int:
    """Return the rank of a result from an operation's arguments alone."""
    for parameter in ("shape", "new_shape", "is_broadcast_dim"):
        if parameter in given:
            return len(given[parameter])
    rank = max(ranks, default=0)
    if name == "linear":
        return ranks[0] + ranks[1] - 2
    if name in ("select", "embedding_fwd"):
        return rank - 1 if name == "select" else ranks[0] + 1
    reduces = name == "squeeze" or ("keepdim" in given and not given["keepdim"])
    dims = given.get("dims")
    if name == "permute" or not (reduces or name in _REDUCTIONS) or given.get("keepdim"):
        return rank
    if dims is None:
        return 0
    return rank - (1 if isinstance(dims, int) else len(dims))


_REDUCTIONS = frozenset(
    ["sum", "prod", "max", "min", "mean", "var", "var_mean", "any", "all", "argmax", "argmin"]
)
