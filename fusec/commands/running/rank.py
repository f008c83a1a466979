"""One rank of a run: it reads its part of the inputs and computes its part of the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec import driver
from fusec.commands.facts import Facts, begin_run, built_facts, output_facts
from fusec.commands.report import print_outputs
from fusec.commands.running.judge_ranks import added_by_nccl, expected_of_ranks
from fusec.commands.running.run_inputs import RunOptions, at_sizes, check_sizes, inputs_of
from fusec.commands.running.traced import gather_trace, noting, slices_of
from fusec.commands.running.verify import agree, judge, load_expected
from fusec.commands.terminal.diagnose import Report
from fusec.commands.terminal.progress import build_progress, working
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.driver import Compilation
from fusec.explain.units import time_text
from fusec.run.distributed.gathering import gather_arrays
from fusec.run.distributed.links import Links
from fusec.run.distributed.ranks import COMPILING
from fusec.run.trace import Slice

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion
    from fusec.ir.sharding import Mesh, Sharding
    from fusec.reference.errors.nodes import Model

Arrays = Mapping[str, Any]


def run_rank(links: Links, program: Compilation, options: RunOptions, report: Report) -> int:
    """Run a program as one rank; rank 0 assembles the outputs, compares, prints and reports.

    Every rank generates the same random inputs of the whole fusion and takes its part.
    """
    from fusec.lowering import division
    from fusec.reference.errors.nodes import Model

    inputs, sizes = inputs_of(program.original, options)
    check_sizes(program.options.sizes, sizes)
    sized = Compilation(at_sizes(program.original, sizes), program.options)
    fusion = sized.original
    assert fusion.mesh is not None
    facts = begin_run(report, fusion, sizes)
    facts["ranks"] = links.size
    expected = None if options.expect is None else load_expected(fusion, options.expect)
    divided = division(fusion, sized.options).partition
    placed, shares = divided.placed, divided.fusion.hints
    own = parts_of(fusion, inputs, placed, fusion.mesh, links.rank, shares)
    on_gpu = _on_gpu(options, report)
    slices = list[Slice]() if options.trace else None
    if on_gpu:
        found, local, nccl = _executed(links, sized, own, options.repeats, slices, facts)
    else:
        found, local = _interpreted(links, sized, own, slices), Model()
        nccl = frozenset[str]()
    links.phase("gathering outputs")
    parts = gather_arrays(links, found, COMPILING)
    if options.trace is not None:
        gather_trace(links, options.trace, fusion.name, slices or [])
    if parts is None:
        return 0
    links.phase("verifying")
    outputs, copies = assembled(fusion, parts, placed, fusion.mesh, shares)
    right = not copies
    if options.verify:
        spelled, model = expected_of_ranks(sized, local, nccl)
        how = options.judging
        judged = judge(spelled, lambda: model, inputs, sizes, outputs, how)
        right, facts["verdict"] = judged.accepted and right, judged.facts
    for line in copies:
        print(line)
    facts |= {"copies": copies, "outputs": output_facts(fusion, sizes, outputs, options.values)}
    if options.values:
        print_outputs(fusion, sizes, outputs, options.values)
    if options.outputs is not None:
        from fusec.run.arrays import save_arrays

        save_arrays(options.outputs, outputs)
    if expected is not None:
        assert options.expect is not None
        given = (inputs, sizes, outputs, expected, options.expect)
        verified = options.verify and right
        agreed = agree(fusion, *given, options.judging, verified=verified)
        right, facts["expected"] = agreed.accepted and right, agreed.facts
    return 0 if right else 1


def parts_of(
    fusion: Fusion,
    inputs: Arrays,
    placed: Mapping[str, Sharding],
    mesh: Mesh,
    rank: int,
    shares: Mapping[str, int],
) -> dict[str, Any]:
    """Return a rank's parts of the whole inputs; shares: its local sizes of symbols."""
    from fusec.shard.place import local_part

    own = dict(inputs)
    for entry in fusion.inputs:
        name = entry.value.name
        if name in inputs and not entry.value.is_scalar:
            own[name] = local_part(np.asarray(inputs[name]), placed[name], mesh, rank, shares)
            if not holds(placed[name], rank):
                own[name] = np.zeros_like(own[name])  # none of it is used
    return own


def holds(sharding: Sharding, rank: int) -> bool:
    """Return whether a rank holds a tensor, or its part of it."""
    return sharding.ranks is None or rank in sharding.ranks


def assembled(
    fusion: Fusion,
    parts: Sequence[Arrays],
    placed: Mapping[str, Sharding],
    mesh: Mesh,
    shares: Mapping[str, int],
) -> tuple[dict[str, Any], list[str]]:
    """Return the whole outputs assembled from the ranks' parts, and messages for unequal copies.

    shares: a rank's local sizes of symbols.
    """
    from fusec.shard.place import assemble, local_part

    outputs, copies = dict[str, Any](), list[str]()
    for output in fusion.outputs:
        name, sharding = output.value.name, placed[output.value.name]
        own = {rank: parts[rank][name] for rank in mesh.ranks if holds(sharding, rank)}
        outputs[name] = assemble(own, sharding, mesh, shares)
        wrong = [
            rank for rank, part in own.items()
            if local_part(outputs[name], sharding, mesh, rank, shares).tobytes() != part.tobytes()
        ]  # fmt: skip
        if wrong:
            copies.append(
                f"`{name}`: rank {wrong[0]} differs from the ranks that hold the same shard"
            )
    return outputs, copies


def _on_gpu(options: RunOptions, report: Report) -> bool:
    """Return whether to use this rank's GPU; EnvironmentProblem if one is required but missing."""
    from fusec.run.device import device_available

    if options.device == "reference":
        report.facts["gpu"] = {"used": False, "reason": None}
        return False
    reason = device_available()
    report.facts["gpu"] = {"used": reason is None, "reason": reason}
    if options.device == "cuda" and reason is not None:
        raise EnvironmentProblem(reason, help="--device reference does without a GPU")
    if reason is not None:
        print(f"not run on a GPU: {reason}")
    return reason is None


def _interpreted(
    links: Links, program: Compilation, inputs: Arrays, slices: list[Slice] | None
) -> dict[str, Any]:
    from fusec.rank import run_rank as interpret
    from fusec.run.transports.host import HostTransport

    links.phase("compiling", COMPILING)
    assert program.posts.name  # be ready before others wait for this rank in a collective
    links.gather(None, "begin of the run", COMPILING)
    links.phase("interpreting the program")
    given = (inputs, HostTransport(links), links.rank)
    with working("interpreting the program"):
        observe = None if slices is None else noting(slices, links.rank)
        return interpret(program, *given, observe=observe)


def _executed(
    links: Links,
    program: Compilation,
    inputs: Arrays,
    repeats: int,
    slices: list[Slice] | None,
    facts: Facts,
) -> tuple[dict[str, Any], Model, frozenset[str]]:
    """Return the outputs, the model of the program that computed them, and what NCCL reduced."""
    from fusec.run.device import Device
    from fusec.run.distributed.exchange import Member
    from fusec.run.distributed.measure_together import measure_together
    from fusec.run.execute import Executable
    from fusec.run.inputs import bind_sizes
    from fusec.run.transports.choice import GpuTransport, device_of

    mesh = program.original.mesh
    assert mesh is not None
    links.phase("compiling", COMPILING)
    with Device(device_of(links)) as device:
        target = driver.for_device(program.options, device.facts).target
        with build_progress() as progress:
            package = driver.build(program.on((target,)), progress)
        facts |= {**built_facts(package), "device": device.facts.text()}
        sizes = bind_sizes(package.program.local, inputs)
        links.gather(None, "begin of the run", COMPILING)
        links.phase("running on the GPU", COMPILING)
        transport = GpuTransport(links, device)
        try:
            member = Member(mesh, links.rank, transport)
            executable = Executable(
                device,
                package.program.host,
                package.cubins(target),
                member,
                package.program.evaluated,
            )
            with executable.bind(inputs, sizes) as bound:
                bound.reset()
                bound.run()
                transport.until(device.is_done, "the end of the run")
                outputs = bound.outputs()
                carried = [(e, transport.carrier(begin).name) for e, begin in bound.exchanges]
                nccl = links.gather([*added_by_nccl(carried)], "carriers of sums")
                if repeats:
                    seconds = measure_together(bound, transport, links, repeats)
                    facts |= {"seconds": seconds, "repeats": repeats}
                    print(
                        f"total {time_text(seconds)}, mean of {repeats} sequential runs on the "
                        f"slowest of {links.size} ranks, on {device.facts.text()}"
                    )
                if slices is not None:
                    slices += slices_of(bound, links.rank)
                links.phase("freeing memory", links.timeout)
                transport.close()  # before freeing memory that others map
                local = driver.model_of(package.program.host, sizes)
                return outputs, local, frozenset[str]().union(*nccl)
        except BaseException as error:
            links.fail(headline(error))  # so that the others stop waiting for it
            raise
        finally:
            transport.close()


def headline(error: BaseException) -> str:
    """Return a one-line reason for a rank's failure."""
    if isinstance(error, FusecError):
        return f"{error.severity}: {error.diagnostic.message}"
    return f"{type(error).__name__}: {error}".rstrip(": ")
