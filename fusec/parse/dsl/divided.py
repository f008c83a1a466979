"""Shardings of a definition's tensors: over the ranks of a mesh, and over streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fusec import executor
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Span, Unsupported
from fusec.ir.dim import Dim, Shape, dim
from fusec.ir.divided import check_sharding, check_shardings
from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion, Output, Type, Value
from fusec.ir.op import OpDef
from fusec.ir.sharding import STREAM, Mesh, Sharding
from fusec.ops.factors import Factors
from fusec.ops.meshes import check_axis, is_counted, mesh_of_axes, mesh_of_shape
from fusec.parse.dsl import calls
from fusec.parse.dsl.boundaries import span_of
from fusec.parse.dsl.handles import Tensor
from fusec.parse.dsl.lists import is_list
from fusec.parse.dsl.loops import Loops, ParallelType
from fusec.parse.dsl.parts import with_divided_defaults
from fusec.parse.dsl.place import placed
from fusec.parse.dsl.steps import Build, Steps

UNKNOWN_SIZE = 64
"""The default of a `-1` until `execute` provides the actual size, or the next divisible one."""
Say = Callable[[Value, "Mesh | None"], Sharding]
"""Returns how a value is sharded over the mesh of its fusion."""


class Divided:
    """The calls of a definition that shard tensors."""

    _steps: Steps

    def __init__(self) -> None:
        """Start without any shardings."""
        self._mesh: tuple[Mesh, Span | None] | None = None
        self._loops: dict[Tensor, Loops] = {}
        self._first_axes: dict[Tensor, tuple[int | None, ...]] = {}
        self._said: dict[Tensor, Say] = {}

    def set_mesh(self, mesh: Sequence[int] | Mapping[str, int]) -> None:
        """Set the mesh of ranks that run the fusion: sizes of its axes, optionally with names."""
        with placed() as place:
            span = span_of(place)
            sizes = mesh.values() if isinstance(mesh, Mapping) else mesh
            for size in sizes:
                if isinstance(size, bool) or not isinstance(size, int) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise FusecError(f"a mesh axis has at least 1 rank, found {size!r}", span=span)
            if isinstance(mesh, Mapping):
                for name in mesh:
                    check_axis(name, span)
                made = mesh_of_axes([*mesh.items()], span)
            else:
                made = mesh_of_shape([*mesh], span)
            self._mesh = made, span
            self._steps.forget()

    def shard(
        self,
        of: Tensor,
        dims: Mapping[int, Any] | None = None,
        *,
        stream: Any = None,
        ranks: Sequence[int] | None = None,
    ) -> None:
        """Set the sharding of a tensor: for each dim a mesh axis, or several, outermost first.

        `{}`: every rank has all of it. Among axes, `{"whole": 2}` is a factor that stays whole.
        `stream`: the dim that a loop divides, or a mapping from it to the number of slices.
        `ranks`: the ranks that hold it; all of the mesh if none are given.
        """
        with placed() as place:
            if not isinstance(of, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise FusecError(f"expected a tensor of the fusion, got {of!r}")
            span = span_of(place)
            held = None if ranks is None else tuple(ranks)
            self._said[of] = lambda value, mesh: replace(
                _factors(value, mesh, dims or {}, stream, span), ranks=held
            )
            self._steps.forget()
            if of.definition.knows(of):
                self._check(of, self._said[of])

    def parallelize(self, of: Tensor, axis: int, parallel_type: ParallelType) -> None:
        """Distribute the iterations of a loop axis over a mesh axis or over streams."""
        of.axis(axis).parallelize(parallel_type)

    def _check(self, of: Tensor, say: Say) -> None:
        """Raise FusecError if a sharding of a tensor is already known to be wrong."""
        mesh = self._common_mesh()
        if mesh is not None and isinstance(of.operand, Value):
            say(of.operand, mesh)

    def loops_of(self, tensor: Tensor) -> Loops:
        """Return the loop domain of a tensor."""
        if tensor not in self._loops:
            axes = self._first_axes.get(tensor, ())
            rank = tensor.ndim
            if [k for k in axes if k is not None] != list(range(rank)):
                axes = tuple(range(rank))
            self._loops[tensor] = Loops(axes)
        return self._loops[tensor]

    def transform(self, tensor: Tensor, text: str, change: Callable[[], None]) -> None:
        """Change the loop domain of a tensor by a call with this text."""
        change()
        self._steps.forget()

    def note_axes(self, op: OpDef, arguments: calls.Arguments, results: Sequence[Any]) -> None:
        """Record the axes of the results' loop domains where these differ from dims."""
        if op.family in ("reduction", "contraction"):
            for k, result in enumerate(results):
                axes = _axes(op, arguments, k, result.ndim)
                if axes is not None:
                    self._first_axes[result] = axes

    # Results.

    def divided(self, fusion: Fusion, build: Build) -> Fusion:
        """Return a fusion with its mesh and the shardings of its values."""
        shardings: dict[str, Sharding] = {}
        for value, sharding in self._shardings(build):
            known = shardings.setdefault(value.name, sharding)
            if known.dims != sharding.dims:
                raise FusecError(
                    f"`{value.name}` has two shardings: {known} and {sharding}", span=sharding.span
                )
        mesh = self._common_mesh()
        if mesh is None:
            shardings |= self._outside_of_loops(fusion, build, shardings)
        outputs = self._laid_out(fusion, build)
        made = replace(fusion, outputs=outputs, mesh=mesh, shardings=shardings)
        check_shardings(made)
        return with_divided_defaults(made, UNKNOWN_SIZE)

    def _outside_of_loops(
        self, fusion: Fusion, build: Build, said: Mapping[str, Sharding]
    ) -> dict[str, Sharding]:
        """Return the shardings of tensors that are computed whole, outside of loops over others.

        As in nvFuser, a loop domain on streams belongs to one computed tensor: tensors without one
        are in no loop, unless an input's loop domain also applies to them.
        """
        handles = {t: build.builder.resolve(o) for t, o in build.operands.items()}
        given = {entry.value for entry in fusion.inputs}
        on_streams = {
            value
            for tensor, value in handles.items()
            if tensor in self._loops
            and isinstance(value, Value)
            and value.name in said
            and said[value.name].along(STREAM) is not None
        }
        computed = on_streams - given
        if not computed:
            return {}
        named, found = {*handles.values()}, dict[str, Sharding]()
        inherits = on_streams & given
        for node in fusion.nodes:
            follows = bool(inherits & {*node.inputs}) and not computed & {*node.inputs}
            for value in node.outputs:
                if value.name in said or value.is_scalar:
                    continue
                if follows:
                    inherits.add(value)
                elif value in named:
                    found[value.name] = Sharding.whole(value.rank)
        return found

    def _laid_out(self, fusion: Fusion, build: Build) -> tuple[Output, ...]:
        """Return the outputs in the memory order of their allocation domains."""
        outputs = {o.value.name: o for o in fusion.outputs}
        for tensor, loops in self._loops.items():
            if loops.order is None or tensor not in build.operands:
                continue
            value = build.builder.resolve(build.operands[tensor])
            name = value.name if isinstance(value, Value) else ""
            if name not in outputs:
                raise Unsupported(
                    f"an allocation domain of another order than the dims of `{name}`",
                    span=loops.order_span,
                    help="only outputs support it",
                )
            last = len(loops.order) - 1
            order = tuple(last - loops.order.index(k) for k in range(last + 1))
            outputs[name] = replace(outputs[name], stride_order=order)
        return tuple(outputs.values())

    def ranks_of_inputs(self, build: Build) -> dict[str, tuple[int, ...]]:
        """Return over how many ranks each dim of an input is sharded, by name."""
        mesh = self._common_mesh()
        if mesh is None:
            return {}
        found: dict[str, tuple[int, ...]] = {}
        for value, sharding in self._shardings(build):
            ranks = [1] * value.rank
            for axis, at in sharding.axes:
                ranks[at] *= 1 if axis == STREAM else mesh.extent(axis)
            found[value.name] = tuple(ranks)
        return found

    def divided_as(self, tensor: Tensor, shape: Shape) -> tuple[Mesh | None, Sharding]:
        """Return the mesh, and the sharding of one tensor with a shape."""
        mesh, value = self._common_mesh(), Value("tensor", Type(F32, shape))
        say = dict(self._says()).get(tensor)
        sharding = Sharding.whole(len(shape)) if say is None else say(value, mesh)
        check_sharding(value, sharding, mesh)
        return mesh, sharding

    def _shardings(self, build: Build) -> Iterator[tuple[Value, Sharding]]:
        """Yield the values with shardings, and these."""
        mesh = self._common_mesh()
        for tensor, say in self._says():
            value = build.operands.get(tensor)
            value = None if value is None else build.builder.resolve(value)
            if isinstance(value, Value):
                yield value, say(value, mesh)

    def _says(self) -> Iterator[tuple[Tensor, Say]]:
        """Yield the tensors with shardings, and functions that return these."""
        for tensor, loops in self._loops.items():
            if loops.says:
                yield tensor, lambda value, mesh, of=loops: _on_its_mesh(of, value, mesh)
        yield from self._said.items()

    def _common_mesh(self) -> Mesh | None:
        """Return the only mesh of the fusion, of all ranks up to the last one that holds a tensor.

        It has a second axis if tensors are sharded over equal blocks of ranks. Raise Unsupported if
        there are several meshes, and one of them has several axes.
        """
        given = [] if self._mesh is None else [self._mesh]
        given += [(t.mesh, t.mesh_span) for t in self._loops.values() if t.mesh is not None]
        if not given:
            return None
        first = given[0][0]
        if all(mesh == first for mesh, _ in given) and is_counted(first):
            return first
        for mesh, span in given:
            if len(mesh.axes) > 1 or len(first.axes) > 1:
                raise Unsupported(
                    f"tensors on several meshes in one fusion ({{{first}}} and {{{mesh}}})",
                    span=span,
                    help="declare one mesh with all axes; each tensor uses some of them",
                )
        last = max(rank for mesh, _ in given for rank in mesh.ranks)
        count = max(last + 1, executor.ranks().size)
        divided = [t.mesh for t in self._loops.values() if t.mesh is not None and t.is_over_mesh]
        sizes = {mesh.size for mesh in divided}
        if len(sizes) == 1 and all(_is_block(mesh.ranks) for mesh in divided):
            (size,) = sizes
            if size < count:
                return mesh_of_shape([-(-count // size), size], given[0][1])
        return mesh_of_shape([count], given[0][1])


def _is_block(ranks: Sequence[int]) -> bool:
    """Return whether ranks are consecutive, starting at a multiple of their number."""
    return list(ranks) == [*range(ranks[0], ranks[0] + len(ranks))] and ranks[0] % len(ranks) == 0


def _on_its_mesh(loops: Loops, value: Value, mesh: Mesh | None) -> Sharding:
    """Return how a tensor is sharded over the fusion's mesh, which may contain its own mesh."""
    sharding, own = loops.sharding(value.shape, mesh), loops.mesh
    if own is None or mesh is None or own.ranks == mesh.ranks:
        return sharding
    return replace(sharding, ranks=own.ranks, span=sharding.span or loops.mesh_span)


def _factors(
    value: Value, mesh: Mesh | None, dims: Mapping[int, Any], stream: Any, span: Span | None
) -> Sharding:
    """Return the sharding that `fd.shard` specifies."""
    factors = Factors(value.name, value.shape, mesh)
    for at, given in dims.items():
        own = factors.dim(at, span)
        for item in given if is_list(given) else [given]:
            _factor(factors, own, item, mesh, span)
    if isinstance(stream, Mapping):
        for at, slices in stream.items():  # pyright: ignore[reportUnknownVariableType]
            factors.stream(factors.dim(at, span), _size(slices), span)  # pyright: ignore[reportUnknownArgumentType]
    elif stream is not None:
        factors.stream(factors.dim(stream, span), None, span)
    return factors.sharding(span)


def _factor(factors: Factors, at: int, item: Any, mesh: Mesh | None, span: Span | None) -> None:
    if isinstance(item, str):
        if mesh is None:
            help = "call fd.set_mesh([4]) first"
            raise FusecError("the fusion has no mesh to shard over", span=span, help=help)
        factors.shard(at, item, span)
    elif isinstance(item, Mapping) and set(item) == {STREAM}:  # pyright: ignore[reportUnknownArgumentType]
        factors.stream(at, _size(item[STREAM]), span)
    elif isinstance(item, Mapping) and set(item) == {"whole"}:  # pyright: ignore[reportUnknownArgumentType]
        factors.keep(at, _size(item["whole"]), span)
    else:
        help = 'write fd.shard(t, {0: "mesh"}), or {0: [{"whole": 2}, "mesh"]}'
        raise FusecError(
            f"expected a mesh axis as a factor of a dim, got {item!r}", span=span, help=help
        )


def _size(value: Any) -> Dim:
    return dim(calls.as_size(value, "a factor of a dim"))


def _axes(
    op: OpDef, arguments: calls.Arguments, result: int, rank: int
) -> tuple[int | None, ...] | None:
    """Return the dim of each axis of a result's loop domain, None for reduced axes.

    As in nvFuser, a contraction has the contracted axis last, and a reduction has its reduced axes
    in their original positions; extents that are known to be 1 are omitted rather than reduced.
    """
    positional, named = arguments
    given = {**dict(zip((p.name for p in op.params), positional, strict=False)), **named}
    operand = given.get(op.params[0].name)
    if not isinstance(operand, Tensor):
        return None
    extents = operand.operand.shape if operand.definition.knows(operand) else ()
    if op.family == "contraction":
        return (*range(rank), *([] if extents and extents[-1] == 1 else [None]))
    if given.get("keepdim") or op.name == "var" or (op.name, result) == ("var_mean", 0):
        return None
    dims = given.get("dims")
    listed = range(operand.ndim) if dims is None else dims if is_list(dims) else [dims]
    if not all(isinstance(d, int) for d in listed):
        return None
    reduced = {d % operand.ndim for d in listed if operand.ndim}
    gone = {d for d in reduced if extents and extents[d] == 1}
    kept = iter(range(rank))
    left = (d for d in range(operand.ndim) if d not in gone)
    return tuple(None if d in reduced else next(kept, None) for d in left)
