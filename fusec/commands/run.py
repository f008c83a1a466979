"""`fusec run`: random inputs or given ones, kernels on the GPU, the verdict and a table of times."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusec import driver
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.options import CompileOptions

if TYPE_CHECKING:
    from fusec.hostir.program import HostProgram
    from fusec.ir.graph import Fusion
    from fusec.run.measure import Timing
    from fusec.run.verify import Verdict


@dataclass(frozen=True)
class RunOptions:
    """How a run is done.

    device: auto, cuda or reference; repeats: timed runs (0: none); inputs, outputs, expect: files.
    """

    device: str = "auto"
    seed: int = 0
    repeats: int = 20
    verify: bool = True
    inputs: str | None = None
    outputs: str | None = None
    expect: str | None = None


@dataclass(frozen=True)
class Job:
    """A fusion with its program and machine code, ready to run."""

    fusion: Fusion
    program: HostProgram
    cubins: Mapping[str, bytes]
    bytes_of_segment: Mapping[str, int]
    scheduler_of_segment: Mapping[str, str]
    timings: Mapping[str, float]


def run(path: str, compile_options: CompileOptions, options: RunOptions) -> int:
    """Run a fusion file, a script or a compiled folder; return the exit code."""
    from fusec.run.device import device_available

    reason = None if options.device == "reference" else device_available()
    if options.device == "cuda" and reason is not None:
        raise EnvironmentProblem(
            reason, help="--device auto compiles, evaluates the reference and says so"
        )
    on_gpu = options.device != "reference" and reason is None
    if Path(path).is_dir():
        job = _job_of_folder(Path(path), compile_options)
        return _run_job(job, options, on_gpu, reason)
    if Path(path).suffix == ".py":
        return _run_script(path, compile_options, options, on_gpu, reason)
    fusion = driver.load(path, compile_options.sizes)
    return _run_job(_job(fusion, compile_options, on_gpu), options, on_gpu, reason)


def compile_for_device(options: CompileOptions, on_gpu: bool) -> CompileOptions:
    """Return the options with the target of the GPU at hand, where none was chosen."""
    if not on_gpu or options.targets_given:
        return options
    from fusec.run.device import Device

    with Device() as device:
        target = device.facts.target
    return options if target is None else replace(options, targets=(target.arch,))


def _job(fusion: Fusion, options: CompileOptions, on_gpu: bool) -> Job:
    options = compile_for_device(options, on_gpu)
    compiled = driver.compile_fusion(fusion, options, progress=_progress())
    segments = compiled.planned.segmented.segments
    cubins = {name: a.cubin for (name, arch), a in compiled.artifacts.items() if arch == options.target}
    return Job(
        fusion,
        compiled.program,
        cubins,
        {s.name: s.estimate.bytes if s.estimate else 0 for s in segments},
        {s.name: s.scheduler for s in segments},
        compiled.planned.timings.seconds,
    )


def _job_of_folder(folder: Path, options: CompileOptions) -> Job:
    from fusec.commands.artifacts import read_folder
    from fusec.run.build import Source, build

    read = read_folder(folder)
    if options.sizes:
        raise FusecError("--set has no effect on a compiled folder", help="run the fusion file")
    for name in read.edited:
        print(f"note: kernels/{name}.cu was edited since it was compiled", file=sys.stderr)
    target = options.target if options.targets_given else read.manifest["targets"][0]
    sources = [Source(name, text) for name, text in read.sources.items()]
    artifacts = build(sources, [target])
    segments = read.manifest["segments"]
    return Job(
        read.fusion,
        read.program,
        {name: a.cubin for (name, _), a in artifacts.items()},
        {s["name"]: int(s["bytes"]) for s in segments},
        {s["name"]: str(s["scheduler"]) for s in segments},
        {},
    )


def _progress() -> Any:
    if not sys.stderr.isatty():
        return None

    def show(artifact: Any, done: int, total: int) -> None:
        end = "\n" if done == total else "\r"
        print(f"built {done}/{total} {artifact.name:<60.60}", end=end, file=sys.stderr)

    return show


def _run_job(job: Job, options: RunOptions, on_gpu: bool, reason: str | None) -> int:
    from fusec.run.inputs import bind_sizes, choose_sizes, random_inputs

    fusion = job.fusion
    if options.inputs is not None:
        inputs = _load_inputs(fusion, options.inputs)
        sizes = bind_sizes(fusion, inputs)
    else:
        sizes = choose_sizes(fusion)
        inputs = random_inputs(fusion, sizes, options.seed)
    if not on_gpu:
        return _reference_only(job, inputs, sizes, options, reason)
    outputs, timing, device_text, share = _execute(job, inputs, sizes, options)
    verdict = _judge(fusion, sizes, inputs, outputs, options)
    _report(job, timing, verdict, device_text, share)
    if options.outputs is not None:
        from fusec.run.arrays import save_arrays

        save_arrays(options.outputs, outputs)
    return 0 if verdict is None or verdict.ok else 1


def _execute(
    job: Job, inputs: Mapping[str, Any], sizes: Mapping[str, int], options: RunOptions
) -> tuple[dict[str, Any], Timing | None, str, Any]:
    from fusec.run.device import Device
    from fusec.run.execute import Executable
    from fusec.run.measure import measure

    with Device() as device:
        executable = Executable(device, job.program, job.cubins)
        with executable.bind(inputs, sizes) as bound:
            bound.reset()
            bound.run()
            outputs = bound.outputs()
            timing = measure(bound, options.repeats) if options.repeats else None
        bandwidth = device.facts.bandwidth
        text = device.facts.text()
    return outputs, timing, text, bandwidth


def _judge(
    fusion: Fusion,
    sizes: Mapping[str, int],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    options: RunOptions,
) -> Verdict | None:
    from fusec.run.verify import compare

    if options.expect is not None:
        _compare_expected(fusion, outputs, options.expect)
    if not options.verify:
        return None
    return compare(fusion, sizes, inputs, outputs, seed=options.seed)


def _compare_expected(fusion: Fusion, outputs: Mapping[str, Any], path: str) -> None:
    import numpy as np

    from fusec.run.arrays import as_declared, load_arrays

    expected = load_arrays(path)
    for output in fusion.outputs:
        value = output.value
        if value.name not in expected:
            raise FusecError(f"`{path}` has no array `{value.name}`")
        wanted = as_declared(value.name, expected[value.name], value.dtype).astype(np.float64)
        found = outputs[value.name].astype(np.float64)
        if wanted.shape != found.shape:
            raise FusecError(f"`{value.name}` has shape {found.shape}, expected {wanted.shape}")
        roundoff = max(value.dtype.epsilon, 2.0**-24)
        close = np.isclose(found, wanted, rtol=8 * roundoff, atol=8 * roundoff, equal_nan=True)
        if not close.all():
            at = tuple(int(i) for i in np.argwhere(~close)[0])
            error = FusecError(
                f"`{value.name}` differs from `{path}` at {list(at)}: {found[at]} against {wanted[at]}"
            )
            error.exit_code = 1  # pyright: ignore[reportAttributeAccessIssue]
            raise error


def _load_inputs(fusion: Fusion, path: str) -> dict[str, Any]:
    from fusec.run.arrays import as_declared, load_arrays

    arrays = load_arrays(path)
    inputs: dict[str, Any] = {}
    for entry in fusion.inputs:
        name = entry.value.name
        if name in arrays:
            inputs[name] = as_declared(name, arrays[name], entry.value.dtype)
        elif entry.default is None:
            raise FusecError(f"`{path}` has no array `{name}`")
    return inputs


def _reference_only(
    job: Job, inputs: Mapping[str, Any], sizes: Mapping[str, int], options: RunOptions, reason: str | None
) -> int:
    from fusec.ir.evaluate import evaluate

    outputs = evaluate(job.fusion, inputs, sizes)
    if options.outputs is not None:
        from fusec.run.arrays import save_arrays

        typed = {
            o.value.name: outputs[o.value.name].astype(o.value.dtype.numpy) for o in job.fusion.outputs
        }
        save_arrays(options.outputs, typed)
    print(f"{job.fusion.name}: {len(job.program.launches)} kernels, reference evaluated")
    for output in job.fusion.outputs:
        print(f"  {output.value.name}: {output.value.type}")
    print("not verified on a GPU" + (f": {reason}" if reason else ""))
    return 0


def _report(
    job: Job, timing: Timing | None, verdict: Verdict | None, device: str, bandwidth: float
) -> None:
    if timing is not None:
        rows = [("kernel", "scheduler", "time", "bytes", "GB/s", "of bandwidth")]
        for kernel in timing.kernels:
            moved = job.bytes_of_segment.get(kernel.segment, 0)
            rate = moved / kernel.seconds if kernel.seconds else 0.0
            scheduler = job.scheduler_of_segment.get(kernel.segment, "")
            rows.append(
                (kernel.kernel, scheduler, f"{kernel.seconds * 1e6:.1f} us", _size(moved),
                 f"{rate / 1e9:.0f}", f"{100 * rate / bandwidth:.0f} %")
            )  # fmt: skip
        widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
        for row in rows:
            cells = [c.ljust(w) if k < 2 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
            print("  ".join(cells).rstrip())
        print(f"total {timing.seconds * 1e6:.1f} us, median of {timing.repeats} runs with a cold L2, on {device}")
    if verdict is not None:
        print(verdict.text())
        if not verdict.ok:
            for output in verdict.outputs:
                if not output.ok:
                    print(f"  `{output.name}` is made by {_origin(job, output.name)}")


def _origin(job: Job, name: str) -> str:
    for launch in reversed(job.program.launches):
        if name in launch.written:
            scheduler = job.scheduler_of_segment.get(launch.segment, "?")
            return f"segment {launch.segment} ({scheduler}), kernel {launch.kernel}"
    return "no kernel: it is a view"


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count = count / 1024  # pyright: ignore[reportAssignmentType]
    return f"{count:.4g} GiB"


def _run_script(
    path: str, compile_options: CompileOptions, options: RunOptions, on_gpu: bool, reason: str | None
) -> int:
    """Execute a script; every fusion that it executes runs, is verified, and hands its results back."""
    from fusec.commands.dump import dump_for_environment
    from fusec.ir.evaluate import evaluate
    from fusec.parse.script import run_script
    from fusec.run.inputs import bind_sizes

    codes = [0]

    def on_fusion(fusion: Fusion, actuals: Any) -> Any:
        fusion = driver.with_sizes(fusion, compile_options.sizes)
        dump_for_environment(fusion, compile_options)
        if actuals is None:
            codes.append(_run_job(_job(fusion, compile_options, on_gpu), options, on_gpu, reason))
            return None
        inputs = {
            i.value.name: a.array() for i, a in zip(fusion.inputs, actuals, strict=True)
        }
        sizes = bind_sizes(fusion, inputs)
        job = _job(fusion, compile_options, on_gpu)
        if on_gpu:
            outputs, timing, text, bandwidth = _execute(job, inputs, sizes, options)
            verdict = _judge(fusion, sizes, inputs, outputs, options)
            _report(job, timing, verdict, text, bandwidth)
            codes.append(0 if verdict is None or verdict.ok else 1)
        else:
            outputs = evaluate(fusion, inputs, sizes)
            print(f"{fusion.name}: {len(job.program.launches)} kernels, reference evaluated")
            print("not verified on a GPU" + (f": {reason}" if reason else ""))
        return [outputs[o.value.name].astype(o.value.dtype.numpy) for o in fusion.outputs]

    run_script(path, on_fusion)
    return max(codes)
