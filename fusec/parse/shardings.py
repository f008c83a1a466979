"""Shardings of a file's values: `mesh:`, `shard:`, `stream:` and `shardings:`."""

from __future__ import annotations

from collections.abc import Callable

from fusec.codes.segments import NO_MESH
from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import FusecError, Span
from fusec.ir.dim import Dim
from fusec.ir.divided import check_sharding
from fusec.ir.graph import Operand, Value
from fusec.ir.sharding import STREAM, Mesh, Sharding
from fusec.ops.factors import Factors
from fusec.ops.meshes import check_axis, mesh_of_axes, mesh_of_shape
from fusec.parse import fields
from fusec.parse.scope import Skip
from fusec.parse.syntax.expressions import Parser
from fusec.parse.syntax.trees import Tree
from fusec.parse.yaml_nodes import Listing, Mapping, Scalar, YamlNode

FIELDS = ("shard", "stream", "ranks")
WHOLE = "whole"
"""The name of a factor of a dim that is not divided."""
_MESH_HELP = "write `mesh: [4]`, `mesh: [2, 4]` (axes mesh_y, mesh_x), or `mesh: {dp: 2, tp: 4}`"
_SHARD_HELP = "write `shard: {0: mesh}`, or `{0: [dp, tp]}` for dp outermost"
_STREAM_HELP = "write `stream: {0: 4}`, or `stream: 0` for as many slices as dim 0 has elements"
_RANKS_HELP = "write `ranks: [0]` for a value that only rank 0 holds"
_SAID_HELP = "write `h: {shard: {1: mesh}}` or `h: {stream: {0: 4}}`"


def mesh_of(node: YamlNode) -> Mesh:
    """Return the mesh of a file: ranks from 0 on, row-major."""
    if isinstance(node, Mapping):
        axes: list[tuple[str, int]] = []
        for entry in node.entries:
            check_axis(entry.key.text, entry.key.span)
            axes.append((entry.key.text, _extent(entry.value)))
        if not axes:
            raise FusecError("the mesh has no axes", span=node.span, help=_MESH_HELP)
        return mesh_of_axes(axes, node.span)
    items = fields.listing(node, "a mesh (a list or mapping)", _MESH_HELP).items
    return mesh_of_shape([_extent(item) for item in items], node.span)


def _extent(node: YamlNode) -> int:
    if not isinstance(node, Scalar) or not isinstance(node.value, int):
        help = "write the number of ranks, as in `tp: 2`"
        raise fields.wrong(node, "the size of a mesh axis (an integer)", help)
    size = fields.integer(node, "the size of a mesh axis (an integer)")
    if size < 1:
        raise FusecError(f"a mesh axis has at least 1 rank, found {size}", span=node.span)
    return size


def _ranks(node: YamlNode) -> tuple[int, ...]:
    items = fields.listing(node, "the ranks that hold a value (a list)", _RANKS_HELP).items
    return tuple(fields.integer(item, "a rank (an integer)") for item in items)


@dataclass
class Shardings:
    """Reads the shardings of values; they are resolved when all names are known.

    resolve: returns the builder's current version of a value. known: whether the mesh is valid, so
    that uses of its axes can be checked.
    """

    size_of: Callable[[Tree], Dim]
    resolve: Callable[[Operand], Operand]
    mesh: Mesh | None = None
    known: bool = True
    _said: list[tuple[Value, Sharding]] = field(default_factory=list[tuple[Value, Sharding]])

    def read(self, name: str, value: Operand, given: Mapping, span: Span) -> None:
        """Record `shard`, `stream` and `ranks` in the options of a value."""
        shard, stream, ranks = (given.get(key) for key in FIELDS)
        if shard is None and stream is None and ranks is None:
            return
        if not isinstance(value, Value) or value.is_scalar:
            where = shard or stream or ranks
            assert where is not None
            raise FusecError(f"`{name}` is a scalar and cannot be sharded", span=where.span)
        factors = Factors(name, value.shape, self.mesh)
        dims = _Dims(name, factors, self)
        for key, node in (("shard", shard), ("stream", stream)):
            if node is not None:
                dims.shard(node) if key == "shard" else dims.stream(node)
        sharding = factors.sharding(span)
        if ranks is not None:
            sharding = replace(sharding, ranks=_ranks(ranks))
            if self.known:
                check_sharding(value, sharding, self.mesh)
        self._say(name, value, sharding)

    def _say(self, name: str, value: Value, sharding: Sharding) -> None:
        value = self._now(value)
        first = next((s.span for v, s in self._said if self._now(v) is value), None)
        if first is not None:
            raise FusecError(
                f"`{name}` has two shardings",
                span=sharding.span,
                notes=(f"first declared at {first.place()}",),
                help="keep one of them",
            )
        self._said.append((value, sharding))

    def section(
        self, node: YamlNode, find: Callable[[Scalar], Operand], problems: fields.Problems
    ) -> None:
        """Read `shardings:`, values by name."""
        for entry in fields.mapping(node, "shardings (a mapping)", _SAID_HELP).entries:
            with problems.collect(entry.key.span):
                name = entry.key.text
                given = fields.mapping(entry.value, f"the sharding of `{name}`", _SAID_HELP)
                fields.check_fields(given, FIELDS, f"the sharding of `{name}`")
                if not given.entries:
                    raise fields.wrong(given, f"the sharding of `{name}`", _SAID_HELP)
                self.read(name, find(entry.key), given, entry.key.span)

    @property
    def named(self) -> dict[str, Sharding]:
        """Return the shardings by the current names of values."""
        return {self._now(value).name: sharding for value, sharding in self._said}

    def _now(self, value: Value) -> Value:
        found = self.resolve(value)
        assert isinstance(found, Value)
        return found


class _Dims:
    """Reads the clauses of one value."""

    def __init__(self, name: str, factors: Factors, all: Shardings) -> None:
        self._name, self._factors, self._all = name, factors, all

    def shard(self, node: YamlNode) -> None:
        """Read `{dim: axis}` or `{dim: [axis, ...]}`."""
        if not self._all.known:
            raise Skip
        given = self._by_dim(node, "the mesh axes of dims (a mapping)", _SHARD_HELP)
        if self._all.mesh is None and not given:
            raise _no_mesh(node.span)
        for at, value in given:
            for item in value.items if isinstance(value, Listing) else (value,):
                self._factor(at, item)

    def stream(self, node: YamlNode) -> None:
        """Read `{dim: parts}`, or a dim alone."""
        if isinstance(node, Scalar):
            self._factors.stream(self._dim(node), None, node.span)
            return
        for at, value in self._by_dim(node, "the slices of a dim (a mapping)", _STREAM_HELP):
            self._slices(at, value)

    def _by_dim(self, node: YamlNode, what: str, help: str) -> list[tuple[int, YamlNode]]:
        seen: dict[int, Span] = {}
        entries = fields.mapping(node, what, help).entries
        for entry in entries:
            at = self._dim(entry.key)
            if at in seen:
                raise FusecError(
                    f"dim {at} of `{self._name}` is specified twice",
                    span=entry.key.span,
                    notes=(f"first given at {seen[at].place()}",),
                )
            seen[at] = entry.key.span
        return [(at, entry.value) for at, entry in zip(seen, entries, strict=True)]

    def _dim(self, node: Scalar) -> int:
        if isinstance(node.value, str):
            help = f"dims are numbered, as in `{{0: {node.text}}}`"
            raise fields.wrong(node, "the number of a dim", help)
        return self._factors.dim(fields.integer(node, "the number of a dim"), node.span)

    def _factor(self, at: int, item: YamlNode) -> None:
        if isinstance(item, Mapping):
            fields.check_fields(item, (WHOLE, STREAM), "a factor of a dim")
            if len(item.entries) != 1:
                raise fields.wrong(item, "an axis, `{whole: 2}` or `{stream: 4}`", _SHARD_HELP)
            ((key, size),) = ((e.key.text, e.value) for e in item.entries)
            if key == STREAM:
                self._slices(at, size)
            else:
                self._factors.keep(at, self._size(size, "a factor of a dim"), size.span)
            return
        axis = fields.text(item, "the name of a mesh axis")
        if self._all.mesh is None:
            raise _no_mesh(item.span)
        self._factors.shard(at, axis, item.span)

    def _slices(self, at: int, node: YamlNode) -> None:
        self._factors.stream(at, self._size(node, "the number of slices"), node.span)

    def _size(self, node: YamlNode, what: str) -> Dim:
        if not isinstance(node, Scalar) or not node.text.strip():
            raise fields.wrong(node, f"{what} (a size)")
        parser = Parser(node.source, *node.body)
        size = self._all.size_of(parser.expression())
        parser.finish("size")
        return size


def _no_mesh(span: Span) -> FusecError:
    return FusecError(
        "the file has no `mesh` to shard over", span=span, help=_MESH_HELP, code=NO_MESH
    )
