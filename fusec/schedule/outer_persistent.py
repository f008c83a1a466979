"""Column-persistent kernels: reductions over outer axes whose input is read again after them."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.index.access import Facts
from fusec.index.domain import Domain, find_domain
from fusec.index.expression import Var
from fusec.index.instances import Lowering
from fusec.ir.dim import ceildiv, dim
from fusec.ir.graph import Fusion
from fusec.schedule.common import (
    MEMORY_BOUND,
    access,
    dynamic_symbols,
    is_empty,
    needs_wide_index,
    specialise,
    tensor_arguments,
    unsupported_nodes,
    work,
)
from fusec.schedule.plan import Guard, Kernel, KernelPlan
from fusec.schedule.reduction import Orientation, bind_outer, is_inner, width_of
from fusec.schedule.rows import in_place_hazard, phases_of, rows_of
from fusec.schedule.two_pass import two_pass
from fusec.segment.price import bytes_read, traffic
from fusec.segment.protocol import Estimate, Proposal, Refusal
from fusec.target import Target

REGISTER_BYTES = 160
"""Bytes of its columns that a thread keeps in registers."""


@dataclass(frozen=True)
class OuterPersistentParameters:
    """The choices of a column-persistent kernel.

    storage: `registers`, or `none` where the columns are read again in each phase. threads_x:
    vectors of columns side by side; threads_y: rows at a time; rows_per_thread: rows that a thread
    keeps.
    """

    storage: str
    vector_width: int
    threads_x: int
    threads_y: int
    rows_per_thread: int
    wide_index: bool


class OuterPersistent:
    """Accepts reductions over outer axes whose input is read again after them."""

    name = "outer_persistent"

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        """Return a price: one reading where the columns fit into registers."""
        refusal = unsupported_nodes(segment, MEMORY_BOUND)
        if refusal is not None:
            return refusal
        if is_empty(segment):
            return Refusal("empty", "a tensor has no elements")
        oriented = prepare(segment)
        if isinstance(oriented, Refusal):
            return oriented
        fusion, domain, rows = oriented.fusion, oriented.domain, oriented.rows
        binding, (row, chunk, lane) = bind_outer(rows, 1)
        lowering = Lowering(fusion, domain, binding)
        phases = phases_of(fusion, lowering, (row, chunk, lane))
        parameters = choose(oriented)
        kept = parameters.storage != "none"
        hazard = in_place_hazard(fusion, lowering, on_chip=kept)
        if hazard is not None:
            return hazard
        if not any(row in i.variables for phase in phases.loads[1:] for i in phase):
            return Refusal("persistence", "nothing is read again after its reduction")
        if any(lowering.home(n.inputs[0])[1] for group in phases.reductions for n in group):
            return Refusal("conditions", "a reduction reads only a part of the domain")
        again = (
            0 if parameters.storage == "registers" else sum(len(p) > 0 for p in phases.loads[1:])
        )
        flops, sfu = work(fusion)
        columns = ceildiv(rows.rows, parameters.vector_width * parameters.threads_x)
        return Estimate(
            bytes=traffic(segment) + again * bytes_read(segment),
            flops=flops,
            sfu=sfu,
            efficiency=target.reach(self.name, access(parameters.vector_width)),
            ctas=columns.evaluate(fusion.hints),
            live_registers=40 + parameters.rows_per_thread * parameters.vector_width,
        )

    def build(self, segment: Fusion, target: Target) -> KernelPlan:
        """Return a plan of one kernel."""
        oriented = prepare(segment)
        assert isinstance(oriented, Orientation)
        fusion, rows, parameters = oriented.fusion, oriented.rows, choose(oriented)
        facts = Facts(fusion.hints)
        width_of(oriented, facts)
        _, guards = needs_wide_index(fusion)
        columns = ceildiv(rows.rows, parameters.vector_width)
        kernel = Kernel(
            name=f"{fusion.name}_outer_persistent",
            template="outer_persistent",
            parameters=parameters,
            grid=(ceildiv(columns, parameters.threads_x), dim(1), dim(1)),
            block=(parameters.threads_x, parameters.threads_y, 1),
            arguments=tensor_arguments(fusion),
        )
        known = {d.name: d.default for d in segment.dims if d.name not in fusion.hints}
        facts_guards = tuple(Guard(v, "%", by, "vectors") for v, by in facts.assumed)
        return KernelPlan(
            self.name, fusion, (kernel,), parameters, (), (*guards, *facts_guards), known
        )


def prepare(segment: Fusion) -> Orientation | Refusal:
    """Return the segment with column lengths put in and variances in two passes, seen by
    columns.
    """
    first = find_domain(segment)
    if isinstance(first, Refusal):
        return first
    reduced = frozenset[str]().union(*(a.extent.symbols for a in first.reduced_axes))
    fusion, _ = specialise(segment, dynamic_symbols(segment) - reduced)
    fusion = two_pass(fusion)
    domain = find_domain(fusion)
    if isinstance(domain, Refusal):
        return domain
    rows = rows_of(domain)
    if isinstance(rows, Refusal):
        return rows
    if is_inner(fusion, domain, rows):
        return Refusal("reduction_axes", "the reduced axes run along memory")
    return Orientation(fusion, domain, rows, inner=False)


def cached_bytes(fusion: Fusion, domain: Domain, oriented: Orientation, width: int) -> int:
    """Return the bytes of registers, per row, of the vectors that more than one phase reads."""
    binding, variables = bind_outer(oriented.rows, width)
    row: Var = variables[0]
    phases = phases_of(fusion, Lowering(fusion, domain, binding), variables)
    sizes = [i.dtype.size * width for i in phases.cached if row in i.variables]
    return sum(max(4, size) for size in sizes)


def choose(oriented: Orientation) -> OuterPersistentParameters:
    """Return the parameters: as many rows at a time as keep a thread's columns in registers."""
    fusion, rows = oriented.fusion, oriented.rows
    width = width_of(oriented, Facts(fusion.hints))
    wide, _ = needs_wide_index(fusion)
    length = rows.columns.value
    results = max(1, rows.rows.evaluate(fusion.hints))
    threads_x = 8
    while threads_x > 1 and threads_x * width > 2 * results:
        threads_x //= 2
    per_row = cached_bytes(fusion, oriented.domain, oriented, width)
    wanted = max(4, -(-length * per_row // REGISTER_BYTES))
    threads_y = min(1024 // threads_x, max(32 // threads_x, 1 << max(0, wanted - 1).bit_length()))
    per_thread = -(-length // threads_y)
    storage = "registers" if per_thread * per_row <= REGISTER_BYTES else "none"
    if storage == "none":
        threads_y = min(threads_y, 512 // threads_x)
    return OuterPersistentParameters(
        storage, width, threads_x, threads_y, -(-length // threads_y), wide
    )
