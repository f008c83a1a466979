"""`fusec run`: random or given inputs, kernels on the GPU, the verdict and a table of times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusec import driver
from fusec.commands.dump import dump_for_environment, environment_kinds
from fusec.commands.facts import (
    begin_run,
    built_facts,
    output_facts,
    predicted_facts,
    timed_facts,
)
from fusec.commands.folder.reading import package_of, read_folder
from fusec.commands.lint import lint, lint_plan
from fusec.commands.report import (
    print_host_verdict,
    print_outputs,
    print_table,
    print_times,
)
from fusec.commands.running.prediction import print_next, print_prediction
from fusec.commands.running.run_inputs import (
    RunOptions,
    at_sizes,
    check_files,
    check_sizes,
    inputs_of,
    with_weights,
)
from fusec.commands.running.traced import has_steps, interpret, slices_of
from fusec.commands.running.verify import agree, judge, load_expected, verify
from fusec.commands.terminal.diagnose import Report
from fusec.commands.terminal.progress import build_progress, working
from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import EnvironmentProblem, FusecError, InternalError, Unsupported
from fusec.driver import Compilation, Package
from fusec.escape import visible
from fusec.files import Names, as_asked, fusions_of, with_sizes
from fusec.models.folder import check_calls, is_model_folder, read_model_folder
from fusec.options import CompileOptions
from fusec.stages import Timings

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion
    from fusec.run.measure import Timing
    from fusec.segment.roofline import Rates

_ONE = (
    "--inputs, --outputs, --expect and --trace take one fusion; compile the file and run the "
    "folders"
)


@dataclass(frozen=True)
class Place:
    """The device of a run: the GPU, or none, with the reason.

    builds: kernels are built; evaluates: without a GPU, the reference computes the outputs.
    """

    on_gpu: bool
    builds: bool
    evaluates: bool = False
    reason: str | None = None


def run(path: str, compile_options: CompileOptions, options: RunOptions, report: Report) -> int:
    """Run a fusion file, a script or a compiled folder; return the exit code."""
    environment_kinds()  # report an unknown name before anything runs
    check_files(options)
    place = _place(options)
    code = _run(path, compile_options, options, place, report)
    if options.page is not None:
        options.page.write()
    report.facts["gpu"] = {"used": place.on_gpu, "reason": place.reason}
    if not place.on_gpu:
        print("not verified on a GPU" + (f": {place.reason}" if place.reason else ""))
        if place.builds and not place.evaluates:
            print_next(path, compile_options.sizes)
    return code


def _run(
    path: str, compile_options: CompileOptions, options: RunOptions, place: Place, report: Report
) -> int:
    if is_model_folder(path):
        check_calls(read_model_folder(path))
        options = with_weights(path, options)
    elif os.path.isdir(path):
        return _run_folder(Path(path), compile_options, options, place, report)
    if Path(path).suffix == ".py":
        return _run_script(path, compile_options, options, place, report)
    (fusion,) = fusions_of(path, compile_options)
    report.warn(lint(fusion))
    return _run_program(path, Compilation(fusion, compile_options), options, place, report)


def _place(options: RunOptions) -> Place:
    from fusec.run.device import device_available

    if options.device == "reference":
        return Place(on_gpu=False, builds=False, evaluates=True)
    reason = device_available()
    if options.device == "cuda" and reason is not None:
        raise EnvironmentProblem(
            reason, help="--device auto compiles and predicts, --device reference evaluates"
        )
    asked = bool(options.outputs or options.expect or options.values or options.trace)
    return Place(
        on_gpu=reason is None, builds=True, evaluates=asked and reason is not None, reason=reason
    )


def _run_folder(
    path: Path, compile_options: CompileOptions, options: RunOptions, place: Place, report: Report
) -> int:
    chosen = compile_options
    passes = chosen.without or chosen.with_ or chosen.stop_after
    precise = chosen.precise or chosen.as_written
    if passes or chosen.check_bounds or precise or chosen.schedule:
        raise FusecError(
            "--schedule, --without, --with, --stop-after, --precise, --as-written and "
            "--check-bounds have no effect on a compiled folder",
            help="compile the fusion with them, or run the fusion file",
        )
    if options.page is not None and not place.builds:
        raise FusecError(
            "--html of a compiled folder with --device reference: its kernels are not loaded",
            help="--device auto, or run the fusion file",
        )
    if options.trace is not None and not place.on_gpu:
        raise FusecError(
            "--trace of a compiled folder needs a GPU", help="without one, run the fusion file"
        )
    contents = read_folder(path)
    mesh = contents.fusion.mesh
    if mesh is not None and mesh.size > 1:
        raise Unsupported(
            "a compiled folder on several ranks", help="run the fusion file", span=mesh.span
        )
    for name in contents.edited:
        print(visible(f"edited since it was compiled: {path / name}"))
    package = None
    inputs, sizes = _inputs(with_sizes(contents.fusion, chosen.sizes), options, place)
    check_sizes(chosen.sizes, sizes)
    if place.builds:
        first = contents.manifest.plans[0].targets[0]
        package = package_of(contents, _target(chosen, place) or first, chosen, sizes)
    return _perform(contents.fusion, package, inputs, sizes, options, place, report)[0]


def _run_program(
    path: str, program: Compilation, options: RunOptions, place: Place, report: Report
) -> int:
    """Run each phase of a fusion on the saved values of earlier phases."""
    given = program.options.sizes
    if len(program.parts) > 1 and options.files:
        raise FusecError(f"`{path}` has several phases", help=_ONE)
    codes: list[int] = []
    known: dict[str, Any] = {}
    for part in program.parts:
        dump_for_environment(part)
        inputs, sizes = _inputs(part.original, options, place)
        inputs |= {name: known[name] for name in inputs if name in known}
        check_sizes(given, sizes)
        sized = Compilation(at_sizes(part.original, sizes), program.options)
        package = _built(sized, place)
        how = (options, place, report, sized)
        code, outputs = _perform(sized.original, package, inputs, sizes, *how)
        known |= {**inputs, **outputs}
        codes.append(code)
    return max(codes)


def _target(options: CompileOptions, place: Place) -> str | None:
    """Return the target of the local GPU, or the one that the user chose, if any."""
    if options.targets_given or not place.on_gpu:
        return options.target if options.targets_given else None
    from fusec.run.device import Device

    with Device() as device:
        return driver.for_device(options, device.facts).target


def _built(program: Compilation, place: Place) -> Package | None:
    """Return a program built for the local GPU, or for the first target of its options."""
    if not place.builds:
        return None
    target = _target(program.options, place) or program.options.target
    with build_progress() as progress:
        return driver.build(program.on((target,)), progress)


def _inputs(
    fusion: Fusion, options: RunOptions, place: Place
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return inputs with their sizes; if nothing is computed, only the sizes."""
    if options.inputs is None and not (place.on_gpu or place.evaluates):
        from fusec.run.inputs import choose_sizes

        return {}, choose_sizes(fusion)
    return inputs_of(fusion, options)


def _perform(
    fusion: Fusion,
    package: Package | None,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    options: RunOptions,
    place: Place,
    report: Report,
    program: Compilation | None = None,
) -> tuple[int, dict[str, Any]]:
    """Run, print, compare and save; return the exit code and the outputs.

    program: of a fusion for which no kernels are built.
    """
    from fusec.run.arrays import save_arrays

    right, verified, outputs = True, options.verify, dict[str, Any]()
    facts = begin_run(report, fusion, sizes)
    program = package.program if package is not None else program
    timings = Timings(fusion.name) if program is None else program.timings
    expected = None if options.expect is None else load_expected(fusion, options.expect)
    if package is not None:
        facts |= built_facts(package)
    timing, device = None, ""
    if package is not None and place.on_gpu:
        found = timings.measure("run", lambda: _execute(package, inputs, sizes, options))
        outputs, timing, device, rates = found
        if timing is not None:
            print_table(package, sizes, timing, device, rates)
            facts |= timed_facts(package, sizes, timing, device, rates)
        if options.verify:
            compared = (inputs, sizes, outputs, options.judging)
            judged = timings.measure("verify", lambda: verify(package, *compared))
            right, facts["verdict"] = judged.accepted, judged.facts
    elif package is not None:
        facts |= predicted_facts(print_prediction(package))
    if options.page is not None and program is not None:
        options.page.add(program, package, sizes, timing, device)
    if place.evaluates and program is not None and (options.trace or has_steps(program)):
        outputs = interpret(program, inputs, options.trace)
        if options.verify:
            model = partial(driver.model_of, program.posts, sizes)
            given = (program.original, model, inputs, sizes, outputs, options.judging)
            judged = timings.measure("verify", lambda: judge(*given, show=print_host_verdict))
            right, facts["verdict"] = judged.accepted, judged.facts
    elif place.evaluates:
        with working("evaluating the reference"):
            evaluated = (fusion, inputs, sizes)
            outputs = timings.measure("reference", lambda: driver.reference(*evaluated))
        verified = True  # it is the reference
        print(f"{fusion.name}: reference evaluated")
    facts["outputs"] = output_facts(fusion, sizes, outputs, options.values)
    if options.values or not place.on_gpu:
        print_outputs(fusion, sizes, outputs, options.values)
    if options.outputs is not None:
        save_arrays(options.outputs, outputs)
    if expected is not None:
        assert options.expect is not None
        found = (inputs, sizes, outputs, expected, options.expect)
        agreed = agree(fusion, *found, options.judging, verified=verified and right)
        right, facts["expected"] = agreed.accepted and right, agreed.facts
    facts["stages"] = timings.seconds
    if options.times:
        print_times(timings.seconds)
    return 0 if right else 1, outputs


def _execute(
    package: Package, inputs: Mapping[str, Any], sizes: Mapping[str, int], options: RunOptions
) -> tuple[dict[str, Any], Timing | None, str, Rates]:
    from fusec.run.device import Device
    from fusec.run.execute import Executable
    from fusec.run.measure import measure
    from fusec.run.trace import write_trace

    try:
        with Device() as device:
            cubins = package.cubins(package.targets[0])
            executable = Executable(
                device, package.program.host, cubins, None, package.program.evaluated
            )
            with executable.bind(inputs, sizes) as bound:
                bound.reset()
                bound.run()
                outputs = bound.outputs()
                timing = measure(bound, options.repeats) if options.repeats else None
                if options.trace is not None:
                    write_trace(options.trace, package.program.original.name, slices_of(bound))
            return outputs, timing, device.facts.text(), device.facts.rates
    except InternalError as error:
        if not package.edited:
            raise
        raise FusecError(
            error.diagnostic.message,
            notes=[*error.diagnostic.notes, f"edited: {', '.join(package.edited)}"],
            help="undo the edit, or compile the fusion again into another folder",
        ) from None


def _run_script(
    path: str, compile_options: CompileOptions, options: RunOptions, place: Place, report: Report
) -> int:
    """Execute a script; run and verify each fusion that it executes, and return results to it."""
    from fusec.generator import manual_seed
    from fusec.nvfuser.script import no_fusion, run_script
    from fusec.run.inputs import bind_sizes

    codes: list[int] = []
    warned: set[str] = set()
    names = Names()

    def on_fusion(fusion: Fusion, actuals: Any) -> Any:
        try:
            return run_one(fusion, actuals)
        except MemoryError:
            raise EnvironmentProblem("out of memory", help="smaller sizes") from None
        except FusecError:
            raise
        except Exception as error:
            # Otherwise it would count as an error of the script, through which it propagates.
            raise InternalError(
                f"{type(error).__name__}: {error}", help="this is a bug in fusec; please report it"
            ) from error

    def run_one(fusion: Fusion, actuals: Any) -> Any:
        fusion = as_asked(names.unique(fusion), compile_options)
        if fusion.name not in warned:
            warned.add(fusion.name)
            report.warn((*lint(fusion), *lint_plan(Compilation(fusion, compile_options))))
        if codes and options.files:
            raise FusecError(f"`{path}` runs several fusions", help=_ONE)
        if actuals is None:
            program = Compilation(with_sizes(fusion, compile_options.sizes), compile_options)
            codes.append(_run_program(path, program, options, place, report))
            return None
        fusion = replace(fusion, phases=())  # all inputs are given at once
        if options.inputs or options.kind != "reals" or compile_options.sizes:
            raise FusecError(
                "--inputs, --inputs-kind and --set have no effect: the script passes the inputs "
                "itself",
                help="change them in the script, or compile it and run the folder",
            )
        program = Compilation(fusion, compile_options)
        dump_for_environment(program)
        inputs = {i.value.name: a.array() for i, a in zip(fusion.inputs, actuals, strict=True)}
        package, sizes = _built(program, place), bind_sizes(fusion, inputs)
        # The script may use the results: without a GPU, the reference computes them.
        computing = replace(place, evaluates=not place.on_gpu)
        how = (options, computing, report, program)
        code, outputs = _perform(fusion, package, inputs, sizes, *how)
        codes.append(code)
        return [outputs[o.value.name] for o in fusion.outputs]

    manual_seed(options.seed)
    defined = run_script(path, on_fusion)
    if not codes:
        raise no_fusion(path, defined)
    return max(codes)
