"""`fusec run`: random or given inputs, kernels on the GPU, the verdict and a table of times."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from fusec import driver
from fusec.commands.diagnose import Report
from fusec.commands.dump import dump_for_environment, environment_kinds
from fusec.commands.job import Job, job_of_folder, job_of_fusion
from fusec.commands.lint import lint, lint_strides
from fusec.commands.prediction import print_next, print_prediction
from fusec.commands.progress import working
from fusec.commands.report import (
    no_array,
    print_outputs,
    print_table,
    print_times,
)
from fusec.commands.verify import Judging, agree, load_expected, verify
from fusec.diagnostics import EnvironmentProblem, FusecError, InternalError
from fusec.options import CompileOptions

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion
    from fusec.run.measure import Timing
    from fusec.segment.roofline import Rates

SUFFIXES = (".safetensors", ".npz")


@dataclass(frozen=True)
class RunOptions:
    """How a run is done.

    device: auto, cuda or reference; repeats: timed runs (0: none); inputs, outputs, expect: files;
    times: print the time of each stage; values: print so many of each output; kind: of random
    inputs, reals or integers; judging: what counts as right.
    """

    device: str = "auto"
    seed: int = 0
    repeats: int = 20
    verify: bool = True
    inputs: str | None = None
    outputs: str | None = None
    expect: str | None = None
    times: bool = False
    values: int = 0
    kind: str = "reals"
    judging: Judging = field(default_factory=Judging)


@dataclass(frozen=True)
class Place:
    """Where a run happens: on the GPU, or without one, with the reason.

    builds: kernels are built; evaluates: without a GPU, the reference computes the outputs.
    """

    on_gpu: bool
    builds: bool
    evaluates: bool = False
    reason: str | None = None


def run(path: str, compile_options: CompileOptions, options: RunOptions, report: Report) -> int:
    """Run a fusion file, a script or a compiled folder; return the exit code."""
    environment_kinds()  # an unknown name is told before anything runs
    _check_files(options)
    place = _place(options)
    code = _run(path, compile_options, options, place, report)
    if not place.on_gpu:
        print("not verified on a GPU" + (f": {place.reason}" if place.reason else ""))
        if place.builds and not place.evaluates:
            print_next(path, compile_options.sizes)
    return code


def _run(
    path: str, compile_options: CompileOptions, options: RunOptions, place: Place, report: Report
) -> int:
    if os.path.isdir(path):
        return _run_folder(Path(path), compile_options, options, place)
    if Path(path).suffix == ".py":
        return _run_script(path, compile_options, options, place, report)
    (whole,) = driver.load_whole(path, compile_options.sizes)
    report.warn(lint(whole))
    fusions = driver.phases_of(whole, compile_options)
    if len(fusions) > 1:
        return _run_phases(path, fusions, compile_options, options, place)
    return _run_fusion(fusions[0], compile_options, options, place)


def _check_files(options: RunOptions) -> None:
    """Raise FusecError for a file that cannot be, before any work is done."""
    if options.kind != "reals" and options.inputs is not None:
        raise FusecError("--inputs-kind has no effect on the inputs of a file")
    for flag, name in (("--inputs", options.inputs), ("--expect", options.expect)):
        if name is not None and not Path(name).is_file():
            what = "is a directory" if Path(name).is_dir() else "does not exist"
            raise FusecError(f"{flag} {name}: the file {what}")
    given = {"--inputs": options.inputs, "--outputs": options.outputs, "--expect": options.expect}
    for flag, name in given.items():
        if name is not None and Path(name).suffix not in SUFFIXES:
            raise FusecError(f"{flag} {name}: neither a .safetensors nor an .npz file")
    if options.outputs is not None:
        folder = Path(options.outputs).absolute().parent
        if Path(options.outputs).is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise FusecError(f"--outputs {options.outputs}: cannot be written there")


def _place(options: RunOptions) -> Place:
    from fusec.run.device import device_available

    if options.device == "reference":
        return Place(on_gpu=False, builds=False, evaluates=True)
    reason = device_available()
    if options.device == "cuda" and reason is not None:
        raise EnvironmentProblem(
            reason, help="--device auto compiles and predicts, --device reference evaluates"
        )
    asked = bool(options.outputs or options.expect or options.values)
    return Place(on_gpu=reason is None, builds=True, evaluates=asked, reason=reason)


def _run_folder(
    path: Path, compile_options: CompileOptions, options: RunOptions, place: Place
) -> int:
    job = job_of_folder(path, compile_options, on_gpu=place.on_gpu, builds=place.builds)
    inputs, sizes = _inputs(job.fusion, options, place)
    return _run_job(job, inputs, sizes, options, place)[0]


def _run_fusion(
    fusion: Fusion, compile_options: CompileOptions, options: RunOptions, place: Place
) -> int:
    dump_for_environment(fusion, compile_options)
    inputs, sizes = _inputs(fusion, options, place)
    for name, size in compile_options.sizes.items():
        if sizes.get(name, size) != size:
            raise FusecError(f"--set {name}={size}, but the inputs have {name}={sizes[name]}")
    fusion = _at(fusion, sizes)
    job = _job(fusion, compile_options, place)
    return _run_job(job, inputs, sizes, options, place)[0]


def _run_phases(
    path: str,
    fusions: Sequence[Fusion],
    compile_options: CompileOptions,
    options: RunOptions,
    place: Place,
) -> int:
    """Run the phases of a joint graph, each on what those before it have saved."""
    if options.outputs or options.expect or options.inputs:
        raise FusecError(
            f"`{path}` has several phases",
            help="--inputs, --outputs and --expect take one; compile it and run the folders",
        )
    codes: list[int] = []
    known: dict[str, Any] = {}
    for fusion in fusions:
        dump_for_environment(fusion, compile_options)
        inputs, sizes = _inputs(fusion, options, place)
        inputs |= {name: known[name] for name in inputs if name in known}
        code, outputs = _run_job(
            _job(fusion, compile_options, place), inputs, sizes, options, place
        )
        known |= {**inputs, **outputs}
        codes.append(code)
    return max(codes)


def _at(fusion: Fusion, sizes: Mapping[str, int]) -> Fusion:
    """Return the fusion with the sizes of its inputs as defaults: plans are made for them."""
    return replace(fusion, dims=tuple(replace(d, default=sizes[d.name]) for d in fusion.dims))


def _job(fusion: Fusion, compile_options: CompileOptions, place: Place) -> Job:
    if place.builds:
        return job_of_fusion(fusion, compile_options, place.on_gpu)
    return Job(fusion, None, {}, "", {}, {})


def _inputs(
    fusion: Fusion, options: RunOptions, place: Place
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return inputs with their sizes; where nothing is computed, the sizes are enough."""
    from fusec.run.inputs import bind_sizes, choose_sizes, random_inputs

    if options.inputs is None:
        sizes = choose_sizes(fusion)
        if not (place.on_gpu or place.evaluates):
            return {}, sizes
        return random_inputs(fusion, sizes, options.seed, options.kind), sizes
    inputs = _load_inputs(fusion, options.inputs, options.seed)
    return inputs, bind_sizes(fusion, inputs)


def _load_inputs(fusion: Fusion, path: str, seed: int) -> dict[str, Any]:
    from fusec.run.arrays import as_declared, load_arrays
    from fusec.run.inputs import generator_state

    arrays = load_arrays(path)
    inputs: dict[str, Any] = {}
    for entry in fusion.inputs:
        name = entry.value.name
        if name in arrays:
            array = as_declared(name, arrays[name], entry.value.dtype)
            inputs[name] = array.item() if entry.value.is_scalar and not array.shape else array
        elif entry.generator:
            inputs[name] = generator_state(entry, (seed, 0))
        elif entry.default is None:
            raise no_array(path, name, arrays)
    return inputs


def _run_job(
    job: Job,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    options: RunOptions,
    place: Place,
) -> tuple[int, dict[str, Any]]:
    """Run, print, compare and save; return the exit code and the outputs."""
    from fusec.run.arrays import save_arrays

    fusion, right = job.fusion, True
    seconds, outputs = dict(job.seconds), dict[str, Any]()
    start = perf_counter()
    expected = None if options.expect is None else load_expected(fusion, options.expect)
    if place.on_gpu:
        outputs, timing, device, rates = _execute(job, inputs, sizes, options)
        seconds["run"] = perf_counter() - start
        if timing is not None:
            print_table(job, sizes, timing, device, rates)
        if options.verify:
            start = perf_counter()
            right = verify(job, inputs, sizes, outputs, options.judging)
            seconds["verify"] = perf_counter() - start
    elif job.program is not None:
        print_prediction(job)
    if place.evaluates:
        with working("evaluating the reference"):
            outputs = driver.reference(fusion, inputs, sizes)
        seconds["reference"] = perf_counter() - start
        print(f"{fusion.name}: reference evaluated")
    if options.values or not place.on_gpu:
        print_outputs(fusion, sizes, outputs, options.values)
    if options.outputs is not None:
        save_arrays(options.outputs, outputs)
    if expected is not None:
        assert options.expect is not None
        found = (inputs, sizes, outputs, expected, options.expect)
        right = agree(job, *found, options.judging) and right
    if options.times:
        print_times(seconds)
    return 0 if right else 1, outputs


def _execute(
    job: Job, inputs: Mapping[str, Any], sizes: Mapping[str, int], options: RunOptions
) -> tuple[dict[str, Any], Timing | None, str, Rates]:
    from fusec.run.device import Device
    from fusec.run.execute import Executable
    from fusec.run.measure import measure

    assert job.program is not None
    try:
        with Device() as device:
            executable = Executable(device, job.program, job.cubins)
            with executable.bind(inputs, sizes) as bound:
                bound.reset()
                bound.run()
                outputs = bound.outputs()
                timing = measure(bound, options.repeats) if options.repeats else None
            return outputs, timing, device.facts.text(), device.facts.rates
    except InternalError as error:
        if not job.edited:
            raise
        raise FusecError(
            error.diagnostic.message,
            notes=[*error.diagnostic.notes, f"edited: {', '.join(job.edited)}"],
            help="undo the edit, or compile the fusion again into another folder",
        ) from None


def _run_script(
    path: str, compile_options: CompileOptions, options: RunOptions, place: Place, report: Report
) -> int:
    """Execute a script; each fusion that it executes is run and verified, its results go back."""
    from fusec.generator import manual_seed
    from fusec.parse.script import run_script
    from fusec.run.inputs import bind_sizes

    codes: list[int] = []
    warned: set[str] = set()
    names = driver.Names()

    def on_fusion(fusion: Fusion, actuals: Any) -> Any:
        try:
            return run_one(fusion, actuals)
        except MemoryError:
            raise EnvironmentProblem("out of memory", help="smaller sizes") from None
        except FusecError:
            raise
        except Exception as error:
            # Else it would count as an error of the script, through which it passes.
            raise InternalError(
                f"{type(error).__name__}: {error}", help="this is a bug in fusec; please report it"
            ) from error

    def run_one(fusion: Fusion, actuals: Any) -> Any:
        fusion = names.unique(fusion)
        if fusion.name not in warned:
            warned.add(fusion.name)
            report.warn((*lint(fusion), *lint_strides(fusion, compile_options)))
        if codes and (options.outputs or options.expect or options.inputs):
            raise FusecError(
                f"`{path}` runs several fusions",
                help="--inputs, --outputs and --expect take one; compile it and run the folders",
            )
        if actuals is None:
            sized = driver.with_sizes(fusion, compile_options.sizes)
            parts = driver.phases_of(sized, compile_options)
            if len(parts) > 1:
                codes.append(_run_phases(path, parts, compile_options, options, place))
            else:
                codes.append(_run_fusion(sized, compile_options, options, place))
            return None
        fusion = replace(fusion, phases=())  # all inputs are given at once
        if options.inputs or options.kind != "reals" or compile_options.sizes:
            raise FusecError(
                "--inputs, --inputs-kind and --set have no effect: the script gives the inputs "
                "itself",
                help="change them in the script, or compile it and run the folder",
            )
        dump_for_environment(fusion, compile_options)
        inputs = {i.value.name: a.array() for i, a in zip(fusion.inputs, actuals, strict=True)}
        job, sizes = _job(fusion, compile_options, place), bind_sizes(fusion, inputs)
        # The script may use the results: without a GPU, the reference computes them.
        computing = replace(place, evaluates=not place.on_gpu)
        code, outputs = _run_job(job, inputs, sizes, options, computing)
        codes.append(code)
        return [outputs[o.value.name] for o in fusion.outputs]

    manual_seed(options.seed)
    run_script(path, on_fusion)
    if not codes:
        raise FusecError(
            f"`{path}` defines no fusion",
            help="write `with FusionDefinition() as fd: ...` with at least one fd.add_output",
        )
    return max(codes)
