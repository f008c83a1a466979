"""The GEMM scheduler: one GEMM that reads its operands in place, with its epilogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import Unsupported
from fusec.index.access import Facts
from fusec.index.domain import repeated
from fusec.index.instances import Instance, Lowering, instances_under
from fusec.ir.annotations import Setting
from fusec.ir.effects import Touch, conflict
from fusec.ir.graph import Fusion
from fusec.properties import cached_property
from fusec.schedule.attention.recompute import recomputed_scores
from fusec.schedule.common import dynamic_symbols, specialise, tensor_arguments, unsupported_nodes
from fusec.schedule.compared import ComparedFamily
from fusec.schedule.matmul.choice import MatmulParameters, coordinate_guards, sizes_of
from fusec.schedule.matmul.compared import compared
from fusec.schedule.matmul.cost.cache_hints import streamed_operands
from fusec.schedule.matmul.cost.estimate import lasting, ranked, seconds
from fusec.schedule.matmul.cost.work import ProductWork, work_of
from fusec.schedule.matmul.dual import find_products
from fusec.schedule.matmul.former import FORMER
from fusec.schedule.matmul.kernel.names import VOCABULARY
from fusec.schedule.matmul.kernels import kernels, relied_on
from fusec.schedule.matmul.legal import why_illegal
from fusec.schedule.matmul.maps import tensor_maps
from fusec.schedule.matmul.operands.block_scales import unrounded_operands
from fusec.schedule.matmul.order import order_of
from fusec.schedule.matmul.problem import Product, assume_vectors, bind
from fusec.schedule.matmul.records import with_settings
from fusec.schedule.matmul.redefinitions import Estimated, definitions_of_product
from fusec.schedule.matmul.scales import with_scaled_results
from fusec.schedule.matmul.shared import MatmulKernel, shared_layout
from fusec.schedule.matmul.sums import SUM_SLICES, sum_slices, summed_words, tiles_of, work_buffers
from fusec.schedule.matmul.totals import find_totals, totals_in_tiles, without_totals
from fusec.schedule.matmul.traits import Traits, traits_of
from fusec.schedule.orders import is_sum, of_all
from fusec.schedule.plan import Argument, Guard, Kernel, Plan, Workspace
from fusec.schedule.pressure import Pressure, of_template
from fusec.schedule.problem import Problem
from fusec.schedule.registers import words
from fusec.schedule.requirements import IN_GEMM, one_gemm
from fusec.schedule.run_time_sizes import Loops, with_run_time_sizes
from fusec.schedule.templates import Template
from fusec.segment.protocol import Estimate, Redefinition, Refusal
from fusec.segment.roofline import tensor_flops
from fusec.segment.traffic import traffic, with_writes, work
from fusec.target import Target


@dataclass(frozen=True, eq=False)
class MatmulProblem(Problem):
    """A segment around its GEMM."""

    product: Product

    def kernels(self, target: Target) -> Mapping[str, str]:
        """Return the reason why each kernel cannot run the GEMM, empty if it can."""
        if target.arch not in self._kernels:
            sizes, facts = sizes_of(self.product, self.hints), Facts(self.hints)
            self._kernels[target.arch] = kernels(self.product, target, sizes, facts)
        return self._kernels[target.arch]

    @cached_property
    def _kernels(self) -> dict[str, Mapping[str, str]]:
        return {}

    @cached_property
    def work(self) -> ProductWork:
        """Return the work of the GEMM, independent of its kernel."""
        return work_of(self.product, traffic(self.segment), self.hints)

    @cached_property
    def traits(self) -> Traits:
        """Return the traits that determine which parameters to compare."""
        return traits_of(self.product, self.hints)


MatmulPlan = Plan[MatmulProblem, MatmulParameters]


class Matmul(ComparedFamily[MatmulProblem, MatmulParameters, MatmulPlan]):
    """Accepts segments of one GEMM, or of two with a common operand, and their epilogues."""

    name = "matmul"
    templates: ClassVar = {
        "matmul_simt": Template("matmul.views", 20),
        "matmul_mma": Template("matmul.views", 36),
        "matmul_gemv": Template("matmul.views", 30),
        "matmul_wgmma": Template("matmul.views", 36),
        "matmul_split_k": Template("matmul.views", 36),
        "matmul_stream_k": Template("matmul.views", 36),
        "matmul_sum_slices": Template("matmul.views", 24),
    }
    reach = ("matmul",)
    vocabulary = VOCABULARY
    former = FORMER

    def problem(self, segment: Fusion) -> MatmulProblem | Refusal:
        """Return the segment around its GEMM, or why it is unsupported."""
        refusal = one_gemm(segment) or unsupported_nodes(
            without_totals(segment, find_totals(segment)), IN_GEMM
        )
        if refusal is not None:
            return refusal
        scaled = with_scaled_results(segment)
        product = find_products(scaled)
        if isinstance(product, Refusal):
            return product
        fusion, _ = specialise(scaled, dynamic_symbols(scaled))
        product = find_products(fusion)
        if isinstance(product, Refusal):
            return product
        return _unreadable(fusion, product) or MatmulProblem(segment, fusion, product)

    def with_dynamic_sizes(self, problem: MatmulProblem) -> MatmulProblem:
        """Return the problem with dynamic rows and batches."""
        return _with_any_rows(problem)

    def compared(
        self, problem: MatmulProblem, target: Target, settings: Mapping[str, Setting]
    ) -> Iterable[MatmulParameters]:
        """Return the parameters to compare, only those of one kernel if it is set."""
        able = tuple(k for k, reason in problem.kernels(target).items() if not reason)
        traits = problem.traits
        if "wgmma" in able:
            traits = replace(traits, slots=problem.product.slots)
        return compared(traits, able, target, str(settings.get("kernel", "")))

    def seconds(
        self, problem: MatmulProblem, parameters: MatmulParameters, target: Target
    ) -> float:
        """Return the predicted time of a record, including the launch of a second kernel."""
        return seconds(parameters, problem.work, target)

    def ranked(
        self, problem: MatmulProblem, found: Iterable[MatmulParameters], target: Target
    ) -> Iterable[MatmulParameters]:
        """Return records in order of predicted time, cached for GEMMs with the same work."""
        return ranked(found, problem.work, target)

    def no_kernel(self, problem: MatmulProblem, target: Target) -> Refusal:
        """Return why there is no kernel."""
        return Refusal("kernel", problem.kernels(target)["wgmma"])

    def _refusal(
        self,
        problem: MatmulProblem,
        default_parameters: MatmulParameters,
        target: Target,
        settings: Mapping[str, Setting],
    ) -> Refusal:
        """Return why fields cannot be set: for a set kernel, together with its own defaults."""
        kernel = settings.get("kernel")
        reason = problem.kernels(target).get(str(kernel), "")
        if reason:
            return Refusal("kernel", reason)
        if kernel is not None and len(settings) > 1:
            found = self.chosen(problem, target, {"kernel": settings["kernel"]})
            default_parameters = default_parameters if isinstance(found, Refusal) else found
        return super()._refusal(problem, default_parameters, target, settings)

    def with_settings(
        self, parameters: MatmulParameters, settings: Mapping[str, Setting]
    ) -> MatmulParameters | Refusal:
        """Return parameters with some free fields set, of another kernel if that is one of them."""
        return with_settings(parameters, settings)

    def with_derived(
        self, problem: MatmulProblem, parameters: MatmulParameters
    ) -> MatmulParameters:
        """Return parameters with the tile fields of their kernel and the derived index width."""
        width = parameters.epilogue_width(problem.product)
        tile = parameters.tile_of(problem.traits, parameters.tile_m)
        return replace(parameters, **tile, vector_width=width, wide_index=problem.wide)

    def why_illegal(
        self, problem: MatmulProblem, parameters: MatmulParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        return why_illegal(
            parameters, problem.product, target, problem.hints, problem.kernels(target)
        )

    def estimate(self, plan: MatmulPlan, target: Target) -> Estimate:
        """Return the estimate: the predicted time of the kernel, expressed as tensor core work."""
        problem, parameters = plan.problem, plan.parameters
        bytes_ = traffic(problem.segment)
        taken = seconds(parameters, replace(problem.work, bytes=bytes_), target)
        taken = max(taken, tensor_flops(problem.segment) / target.half_flops)
        # The time that schedules are compared by includes the launch of a second kernel.
        taken -= (len(plan.kernels) - 1) * target.launch
        flops, sfu = work(problem.product.epilogue.fusion)
        is_shared = parameters.is_serial or parameters.in_arrival_order
        scratch = sum(w.size.evaluate(problem.hints) * w.dtype.size for w in plan.workspaces)
        if parameters.keeps_partials_in_l2:
            scratch = 0
        estimate = Estimate(
            bytes=bytes_,
            workspace_bytes=scratch * (parameters.splits - 1 if is_shared else 1),
            flops=flops,
            sfu=sfu,
            efficiency=target.reach(self.name, "vector"),
            ctas=target.sms,  # SM utilization is part of the predicted time
            kernels=len(plan.kernels),
        )
        return lasting(estimate, taken, target, is_simt=not parameters.on_tensor_cores)

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> tuple[Redefinition, ...]:
        """Return the redefinitions: split K to fill the GPU, slice first, copy operands."""
        if len([n for n in segment.nodes if n.op.family == "contraction"]) != 1:
            return ()
        found = self.known(segment)
        product, own_plan = None, None
        if isinstance(found, MatmulProblem):
            product, own_plan = found.product, self._estimated(found, target)
        others = definitions_of_product(segment, fusion, product, own_plan, target)
        (node,) = (n for n in segment.nodes if n.op.family == "contraction")
        others = (*others, *recomputed_scores(fusion, node))
        if not isinstance(found, MatmulProblem) or found.kernels(target)["wgmma"]:
            return others
        return (*others, *totals_in_tiles(fusion, found.product))

    def _estimated(self, problem: MatmulProblem, target: Target) -> Estimated | None:
        """Return the predicted time of a GEMM's own plan, if it has one."""
        offer = self._offer(problem, target, {})
        if isinstance(offer, Refusal):
            return None
        plan, estimate = offer
        priced = with_writes(estimate, problem.segment)
        return Estimated(priced.seconds(target), plan.parameters)

    def plan(
        self, problem: MatmulProblem, parameters: MatmulParameters, target: Target
    ) -> MatmulPlan:
        """Return a plan of one kernel, or of two if a second one sums slices."""
        fusion, product = problem.fusion, problem.product
        facts = relied_on(product, parameters, target, problem.hints)
        assume_vectors(product, parameters.vector_width, facts)
        parameters.staged_tensors(product, facts)
        guards = problem.index[1]
        assumed = tuple(
            Guard(value, "%", by, "vectorized accesses need aligned rows")
            for value, by in facts.assumed
        )
        if problem.wide and parameters.uses_tma:
            guards = coordinate_guards((product.m, product.n, product.k))
        workspaces = work_buffers(fusion, product, parameters, target)
        layout = shared_layout(parameters, product)
        kernel = MatmulKernel(
            name=f"{fusion.name}_matmul",
            template=parameters.template,
            grid=parameters.grid(tiles_of(product, parameters), target),
            block=(parameters.threads, 1, 1),
            arguments=_arguments(fusion, product, parameters, workspaces),
            shared_bytes=layout.bytes,
            cluster=(parameters.ctas, 1, 1),
            layout=layout,
            once=streamed_operands(product, parameters, problem.hints, target),
        )
        return Plan(
            self.name,
            fusion,
            (kernel, *sum_slices(kernel, product, parameters, fusion.name)),
            parameters,
            workspaces,
            (*guards, *assumed),
            problem.specialised,
            orders={
                **of_all(problem.segment, order_of(product, parameters)),
                **{t.node.output.name: t.order for t in product.totals if is_sum(t.node)},
            },
            unrounded=_unrounded(problem),
            problem=problem,
        )

    def pressure(self, plan: MatmulPlan, kernel: Kernel) -> Pressure:
        """Return the register pressure of a thread: its part of the result tile, and operands."""
        p, result = plan.parameters, plan.problem.product.node.output
        own = of_template(kernel.template)
        if kernel.template == SUM_SLICES:
            return replace(own, staged=summed_words(p))
        if p.words_in_flight is not None:
            own = replace(own, flight=p.words_in_flight)
        return replace(own, staged=p.accumulators * words(result.dtype.compute))


def _unrounded(problem: MatmulProblem) -> tuple[str, ...]:
    """Return the 16-bit values before a GEMM that its kernel does not round."""
    product = problem.product
    rounds = product.scales or product.computed is not None
    return () if rounds else unrounded_operands(problem.segment)


def _with_any_rows(strict: MatmulProblem) -> MatmulProblem:
    """Return the problem with more dynamic sizes, of rows and batches."""
    if strict.product.computed is not None:
        return strict

    def made(fusion: Fusion) -> MatmulProblem | Refusal:
        product = find_products(fusion)
        if isinstance(product, Refusal):
            return product
        return _unreadable(fusion, product) or MatmulProblem(strict.segment, fusion, product)

    def loops(found: MatmulProblem) -> Loops:
        product = found.product
        binding, chunk, lane = bind(product, 1)
        lowering = Lowering(product.epilogue.fusion, product.domain, binding)
        for value in product.made:
            lowering.at_home(value)
        operands = product.operands
        numbers = [d for o in operands for d in (o.row, o.depth) if d is not None]
        form = [(o.k_major, [type(a) for a, _ in o.batch.terms]) for o in operands]
        axes = [len(x) for x in (product.batch_axes, product.row_axes, product.column_axes)]
        return Loops(
            lowering,
            frozenset({chunk, lane}),
            widths=(str(form), str(axes)),
            numbers=(product.n, product.k, *numbers, *(s.row for s in product.scales)),
        )

    return with_run_time_sizes(strict, made, loops)


def _arguments(
    fusion: Fusion, problem: Product, p: MatmulParameters, workspaces: tuple[Workspace, ...]
) -> tuple[Argument, ...]:
    """Return the tensor maps, then the common arguments; mapped operands need no pointer."""
    read = {i.value for i in problem.epilogue.fusion.inputs}
    maps: tuple[Argument, ...] = ()
    if problem.computed is not None:
        read |= problem.computed.buffers
    if p.uses_tma:
        maps = tensor_maps(fusion, problem, p)
    else:
        read |= problem.buffers
    if problem.groups is not None:
        read.add(problem.groups.ends)
    read |= {scales.buffer for scales in problem.scales}
    read |= {i.value for i in fusion.inputs if i.value.is_scalar}
    inputs = fusion.effects.inputs_for(read)
    return (*maps, *tensor_arguments(replace(fusion, inputs=inputs), workspaces))


def _unreadable(segment: Fusion, problem: Product) -> Refusal | None:
    """Return why the epilogue cannot run on the accumulators of a thread."""
    epilogue = problem.epilogue
    operands = {v.name for v in (*problem.buffers, *(s.buffer for s in problem.scales))}
    if problem.groups is not None:
        operands.add(problem.groups.ends.name)
    for output in segment.outputs:
        if output.value.is_scalar:
            return Refusal("outputs", f"`{output.value.name}` is a scalar")
        target = segment.effects.into.get(output.value)
        if target is not None and target.value.name in operands:
            name = target.value.name
            return Refusal("alias", f"`{output.value.name}` is written to `{name}`, an operand")
    alike = {value for value, _ in repeated(epilogue.fusion, problem.domain)}
    effects = epilogue.fusion.effects
    for output in effects.in_place:
        if output.value in alike:
            return Refusal(
                "alias", f"`{output.value.name}` would be written in place more than once"
            )
    lowering = Lowering(epilogue.fusion, problem.domain, bind(problem, 1)[0])
    layout = epilogue.fusion.input_of[epilogue.sums].strides
    own = {sums: lowering.address(sums, layout) for sums in epilogue.all_sums}
    stores: list[Touch] = []
    roots: list[Instance] = []
    try:
        for output in epilogue.fusion.outputs:
            coordinates, conditions = lowering.home(output.value)
            if output.value in effects.into:
                address = lowering.address(output.value, effects.strides(output.value))
                stores.append(Touch(effects.buffer(output.value), address))
            roots.append(lowering.at(output.value, coordinates, conditions))
        roots += [lowering.at_home(total.value) for total in problem.totals]
    except Unsupported as error:
        return Refusal("operation", error.diagnostic.message)
    loads = list[Touch]()
    for instance in instances_under(roots):
        if instance.kind != "load" or instance.value is None:
            continue
        if instance.value in own and instance.address != own[instance.value]:
            node = problem.node
            if problem.dual is not None and instance.value is epilogue.second:
                node = problem.dual.node
            because = f"`{node.output.name}` is read at an index map other than its own"
            return Refusal("index_map", because)
        loads.append(Touch(instance.name, instance.address))
    for store in stores:
        if conflict(store, loads) is not None:
            return Refusal(
                "alias", f"`{store.buffer}` is read at other elements than it is written"
            )
    return None
