"""The transpose scheduler: loads along another axis than the stores go through a shared tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fusec.index.access import Facts, access_class
from fusec.index.domain import Domain, find_domain
from fusec.index.instances import Instance, Lowering
from fusec.ir.dim import Dim, ceildiv, dim, product
from fusec.ir.expression import Index, Var, delinearize, linearize, of_var
from fusec.ir.graph import Fusion
from fusec.schedule.common import (
    dynamic_symbols,
    is_empty,
    specialise,
    tensor_arguments,
    unsupported_nodes,
)
from fusec.schedule.family import Family
from fusec.schedule.plan import Kernel, Plan
from fusec.schedule.pointwise import FAMILIES
from fusec.schedule.pressure import Pressure, flat_pressure
from fusec.schedule.problem import Problem, vector_guards
from fusec.schedule.registers import most_elements
from fusec.schedule.run_time_sizes import Loops, with_run_time_sizes
from fusec.schedule.space import WIDTHS, Field, Parameters
from fusec.schedule.strides import innermost, strided_loads
from fusec.segment.price import traffic, work
from fusec.segment.protocol import Estimate, Refusal
from fusec.target import Target

THREADS = 256
SHARED_LIMIT = 40 << 10
"""Bytes of static shared memory for tiles."""


@dataclass(frozen=True)
class TransposeParameters(Parameters):
    """The choices of a transpose kernel.

    tile: elements of a tile's side; read_width, write_width: elements per access along the lines
    that are read and along the columns that are written.
    """

    tile: int
    read_width: int
    write_width: int
    wide_index: bool
    free: ClassVar = (
        Field("tile", (16, 32, 64)),
        Field("read_width", WIDTHS[:4]),
        Field("write_width", WIDTHS[:4]),
    )


@dataclass(frozen=True, eq=False)
class Crossing(Problem):
    """A segment and the axes of its tiles: `line` along memory in loads, `column` in stores.

    tile_bytes: of an element of all tiles.
    """

    domain: Domain
    line: Var
    column: Var
    tile_bytes: int

    @property
    def others(self) -> tuple[Var, ...]:
        """Return the remaining axes."""
        return tuple(
            a for a in self.domain.axes if a not in (self.line, self.column) and a.extent != 1
        )

    def bind(self, line: Index, column: Index) -> Mapping[Var, Index]:
        """Return the axes in loop variables: `batch` for all but the given line and column."""
        batch = of_var(Var("batch", product(a.extent for a in self.others)))
        at = delinearize(batch, (a.extent for a in self.others))
        binding = dict(zip(self.others, at, strict=True))
        rest = {a: of_var(a) for a in self.domain.axes if a.extent == 1}
        return {**rest, **binding, self.line: line, self.column: column}


TransposePlan = Plan[Crossing, TransposeParameters]


class Transpose(Family[Crossing, TransposeParameters, TransposePlan]):
    """Accepts pointwise segments some of whose loads run along another axis than the stores."""

    name = "transpose"

    def problem(self, segment: Fusion) -> Crossing | Refusal:
        """Return the segment with the axes of its tiles."""
        refusal = unsupported_nodes(segment, FAMILIES)
        if refusal is not None:
            return refusal
        if is_empty(segment) or all(o.value.is_scalar for o in segment.outputs):
            return Refusal("empty", "there is nothing to transpose")
        crossing = cross(segment, specialise(segment, dynamic_symbols(segment))[0])
        if isinstance(crossing, Refusal):
            return crossing
        sides = (crossing.line.extent, crossing.column.extent)
        if min(s.evaluate(crossing.hints) for s in sides) < 8:
            return Refusal("tile", "a side of the tile has fewer than 8 elements")
        return crossing

    def general(self, problem: Crossing) -> Crossing:
        """Return the problem for any number of tiles side by side."""
        return _with_any_batch(problem)

    def likeliest(self, problem: Crossing, target: Target) -> TransposeParameters:
        """Return the parameters: tiles of 128 bytes a side, the widest accesses."""
        read, write = widest_accesses(problem, Facts(problem.hints))
        return TransposeParameters(tile_side(problem.fusion), read, write, problem.wide)

    def trouble(
        self, problem: Crossing, parameters: TransposeParameters, target: Target
    ) -> Refusal | None:
        """Return why no kernel has some parameters, or None."""
        if problem.tile_bytes * _padded(parameters.tile) > SHARED_LIMIT:
            return Refusal("shared memory", "the tiles of all transposed loads do not fit")
        read, write = widest_accesses(problem, Facts(problem.hints))
        for name, width, most in (
            ("read_width", parameters.read_width, read),
            ("write_width", parameters.write_width, write),
        ):
            if width > most:
                return Refusal("access", f"{name} is at most {most} where elements lie so")
        return None

    def plan(
        self, problem: Crossing, parameters: TransposeParameters, target: Target
    ) -> TransposePlan:
        """Return a plan of one kernel."""
        fusion, facts = problem.fusion, Facts(problem.hints)
        widest_accesses(problem, facts)
        tiles = _tiles(problem, parameters.tile)
        kernel = Kernel(
            name=f"{fusion.name}_transpose",
            template="transpose",
            grid=(tiles * product(a.extent for a in problem.others), dim(1), dim(1)),
            block=(THREADS, 1, 1),
            arguments=tensor_arguments(fusion),
        )
        guards = (*problem.index[1], *vector_guards(facts))
        return Plan(
            self.name,
            fusion,
            (kernel,),
            parameters,
            (),
            guards,
            problem.specialised,
            problem=problem,
        )

    def price(self, plan: TransposePlan, target: Target) -> Estimate:
        """Return a price: the inputs and outputs once, through tiles."""
        problem, parameters = plan.problem, plan.parameters
        width = min(parameters.read_width, parameters.write_width)
        flops, sfu = work(problem.fusion)
        return Estimate(
            bytes=traffic(problem.segment),
            flops=flops,
            sfu=sfu,
            efficiency=target.reach(self.name, "vector" if width > 1 else "scalar"),
            ctas=max(1, plan.kernels[0].grid[0].evaluate(problem.hints)),
        )

    def pressure(self, plan: TransposePlan, kernel: Kernel) -> Pressure:
        """Return what a thread holds of the vectors that it writes."""
        width = plan.parameters.write_width
        lowering, loops = write_lowering(plan.problem, width)
        return flat_pressure(lowering, loops, width, 4)


def _tiles(crossing: Crossing, tile: int) -> Dim:
    return ceildiv(crossing.line.extent, tile) * ceildiv(crossing.column.extent, tile)


def _with_any_batch(strict: Crossing) -> Crossing:
    """Return the problem with more sizes left to run time, of what is no side of a tile."""
    symbolic = find_domain(strict.segment)
    if isinstance(symbolic, Refusal):
        return strict
    tile = {strict.domain.axes.index(a) for a in (strict.line, strict.column)}

    def loops(found: Crossing) -> Loops:
        widths = widest_accesses(found, Facts(found.hints))
        lowering, inner = write_lowering(found, widths[1])
        for output in found.fusion.outputs:
            lowering.at_home(output.value)
        return Loops(lowering, frozenset(inner), frozenset(inner[:1]), widths)

    fixed = (a.extent for k, a in enumerate(symbolic.axes) if k in tile)
    return with_run_time_sizes(strict, lambda f: cross(strict.segment, f), loops, fixed)


def cross(segment: Fusion, fusion: Fusion) -> Crossing | Refusal:
    """Return the tile axes of a segment, with sizes put in, or why it has none."""
    domain = find_domain(fusion)
    if isinstance(domain, Refusal):
        return domain
    column = innermost(domain)
    strided, _ = strided_loads(fusion, domain)
    lines = {s.axis for s in strided if s.axis is not None}
    if column is None or not lines:
        return Refusal("no transposition", "every load runs along the stores' innermost axis")
    if len(lines) > 1:
        return Refusal("axes", "the loads run along more than two axes")
    line = lines.pop()
    if any(s.load.conditions for s in strided if s.axis is line):
        return Refusal("conditions", "a transposed load reads only a part of the tile")
    tiles = sum(s.load.dtype.size for s in strided if s.axis is line)
    crossing = Crossing(segment, fusion, domain, line, column, tiles)
    for output in fusion.outputs:
        home = domain.homes[output.value]
        if home.conditions or {line, column} - home.variables:
            return Refusal("store_map", f"`{output.value.name}` does not span the tile")
        address = linearize(home.coordinates, fusion.effects.strides(output.value))
        if address.coefficient(column) != 1:
            return Refusal(
                "store_map", f"`{output.value.name}` is not stored along the tile's columns"
            )
        if output.value in fusion.effects.into:
            return Refusal("in_place", f"`{output.value.name}` is written in place")
    if tiles * _padded(tile_side(fusion)) > SHARED_LIMIT:
        return Refusal("shared memory", "the tiles of all transposed loads do not fit")
    return crossing


def _padded(tile: int) -> int:
    """Return the elements of a tile whose lines are padded against bank conflicts."""
    return tile * (tile + 2)


def tile_side(fusion: Fusion) -> int:
    """Return the elements of a tile's side: 128 bytes of the smallest input."""
    smallest = min((i.value.dtype.size for i in fusion.inputs if i.value.shape), default=4)
    return 64 if smallest <= 2 else 32


def tiled_loads(lowering: Lowering, line: Mapping[Var, int], *across: Var) -> list[Instance]:
    """Return the loads of a lowering that go through the tile.

    They have unit stride along the line, of whose variables `line` has the multiples, and are not
    the same for all columns, over which `across` run.
    """
    steps = {v: by for v, by in line.items() if v.extent != 1}
    found = {
        i
        for i in lowering.made.values()
        if i.kind == "load"
        and i.address is not None
        and all(i.address.coefficient(v) == by for v, by in steps.items())
        and any(i.address.coefficient(a) != 0 for a in across)
    }
    return sorted(found, key=lambda i: (i.name, str(i.address)))


def write_lowering(crossing: Crossing, width: int) -> tuple[Lowering, tuple[Var, Var, Var]]:
    """Return the lowering of the stores: variables line, chunk and lane (of columns)."""
    line = Var("line", crossing.line.extent)
    chunk = Var("chunk", ceildiv(crossing.column.extent, width))
    lane = Var("v", dim(width))
    binding = crossing.bind(of_var(line), of_var(chunk) * width + of_var(lane))
    return Lowering(crossing.fusion, crossing.domain, binding), (line, chunk, lane)


def read_lowering(crossing: Crossing, width: int) -> tuple[Lowering, tuple[Var, Var, Var]]:
    """Return the lowering of the transposed loads: variables column, chunk and lane (of lines)."""
    column = Var("column", crossing.column.extent)
    chunk = Var("chunk", ceildiv(crossing.line.extent, width))
    lane = Var("v", dim(width))
    binding = crossing.bind(of_var(chunk) * width + of_var(lane), of_var(column))
    return Lowering(crossing.fusion, crossing.domain, binding), (column, chunk, lane)


def widest_accesses(crossing: Crossing, facts: Facts) -> tuple[int, int]:
    """Return the widest accesses of the transposed loads and of the stores."""
    fusion = crossing.fusion
    sizes = [i.value.dtype.size for i in fusion.inputs if i.value.shape]
    sizes += [o.value.dtype.size for o in fusion.outputs]
    most = min(16 // min(sizes), most_elements(fusion))
    widths = [w for w in (8, 4, 2) if w <= most]
    read = next((w for w in widths if _reads(crossing, w, facts)), 1)
    write = next((w for w in widths if _writes(crossing, w, facts)), 1)
    return read, write


def _reads(crossing: Crossing, width: int, facts: Facts) -> bool:
    lowering, (column, chunk, lane) = read_lowering(crossing, width)
    if not facts.multiple(crossing.line.extent, width):
        return False
    for output in crossing.fusion.outputs:
        lowering.at_home(output.value)
    loads = tiled_loads(lowering, {chunk: width, lane: 1}, column)
    return bool(loads) and all(
        access_class(i.address, (), lane, width, facts) == "vector" for i in loads if i.address
    )


def _writes(crossing: Crossing, width: int, facts: Facts) -> bool:
    lowering, (_, _, lane) = write_lowering(crossing, width)
    if not facts.multiple(crossing.column.extent, width):
        return False
    for output in crossing.fusion.outputs:
        coordinates, conditions = lowering.home(output.value)
        address = linearize(coordinates, crossing.fusion.effects.strides(output.value))
        if access_class(address, conditions, lane, width, facts) != "vector":
            return False
    return True
