"""The sharding of one value, as files and scripts state it: the factors of its dims, one by one."""

from __future__ import annotations

from fusec.diagnostics import FusecError, Span
from fusec.ir.dim import Dim, ceildiv, dim, floordiv
from fusec.ir.divided import EQUAL_SHARDS
from fusec.ir.sharding import STREAM, Mesh, Part, Sharding


class Factors:
    """The declared factors of each dim of a value, outermost first."""

    def __init__(self, name: str, shape: tuple[Dim, ...], mesh: Mesh | None) -> None:
        """Begin with a value that is whole."""
        self._name, self._shape, self._mesh = name, shape, mesh
        self._parts: list[list[Part]] = [[] for _ in shape]
        self._left: list[Dim] = list(shape)
        self._spans: dict[tuple[str, int], Span | None] = {}

    def dim(self, at: int, span: Span | None) -> int:
        """Return the number of a dim, counted from the first one."""
        rank = len(self._shape)
        if not -rank <= at < rank:
            raise FusecError(
                f"`{self._name}` has {rank} dim{'s' * (rank != 1)}: dim {at} is out of range",
                span=span,
                help=f"dims are numbered 0 to {rank - 1}"
                if rank
                else "a 0-dim tensor is not sharded",
            )
        return at % rank

    def shard(self, at: int, axis: str, span: Span | None) -> None:
        """Divide the remaining extent of a dim over a mesh axis."""
        assert self._mesh is not None
        known = [name for name, _ in self._mesh.axes]
        if axis == STREAM:
            help = "a loop over streams is declared with `stream`, not with `shard`"
            raise FusecError("a stream is not an axis of the mesh", span=span, help=help)
        if axis not in known:
            import difflib

            close = difflib.get_close_matches(axis, known, n=1)
            raise FusecError(
                f"the mesh has no axis `{axis}`",
                span=span,
                help=f"did you mean `{close[0]}`?" if close else f"axes: {', '.join(known)}",
            )
        self._divide(at, axis, dim(self._mesh.extent(axis)), span)

    def stream(self, at: int, slices: Dim | None, span: Span | None) -> None:
        """Divide the remaining extent of a dim into slices of a loop; None: into its elements."""
        parts = self._left[at] if slices is None else slices
        if slices is None and parts == 0:
            raise FusecError(f"dim {at} of `{self._name}` has no elements", span=span)
        _check_parts(parts, "the number of slices", span)
        self._divide(at, STREAM, parts, span)

    def keep(self, at: int, parts: Dim, span: Span | None) -> None:
        """Split a factor off the remaining extent of a dim, and leave it whole."""
        _check_parts(parts, "a factor of a dim", span)
        self._divide(at, None, parts, span)

    def sharding(self, span: Span | None) -> Sharding:
        """Return the declared sharding."""
        return Sharding(tuple(map(tuple, self._parts)), span).stated

    def _divide(self, at: int, axis: str | None, parts: Dim, span: Span | None) -> None:
        # A loop over streams may divide several dims.
        place = (axis or "", at if axis == STREAM else 0)
        if place in self._spans:
            first = self._spans[place]
            kind = "streams divide" if axis == STREAM else f"the mesh axis `{axis}` shards"
            notes = () if first is None else (f"first at {first.place()}",)
            raise FusecError(f"{kind} `{self._name}` twice", span=span, notes=notes)
        left = self._left[at]
        own = left.divide(parts)
        uneven = axis == STREAM and not self._parts[at]
        if own is None and left.is_const and parts.is_const and not uneven:
            of = f"{left} elements" if left == self._shape[at] else f"{left} elements left"
            raise FusecError(
                f"dim {at} of `{self._name}` has {of}, not divisible by {parts}",
                span=span,
                notes=(EQUAL_SHARDS,),
            )
        if axis is not None:
            self._spans[place] = span
        self._parts[at].append(Part(axis, parts, span=span))
        self._left[at] = (ceildiv if uneven else floordiv)(left, parts) if own is None else own


def _check_parts(parts: Dim, what: str, span: Span | None) -> None:
    if parts.is_const and parts.value < 1:
        raise FusecError(f"{what} is at least 1, found {parts}", span=span)
