"""One fusion through every stage, with the stage and the reason where it does not come through."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fusec import driver
from fusec.diagnostics import FusecError, InternalError, Unsupported
from fusec.ir.graph import Fusion, whole_name
from fusec.ir.text import to_text
from fusec.options import DEFAULT_TARGET, CompileOptions
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.run.binary.nvrtc import CompileError
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.run.integers import exact_outputs
from tools.draw import Run
from tools.resize import other_sizes
from tools.schedules import is_repeatable
from tools.segments import run_segments

if TYPE_CHECKING:
    from fusec.hostir.program import HostProgram
    from fusec.reference.errors.nodes import Model
    from fusec.run.build import Source
    from fusec.run.device import Device
    from fusec.schedule.plan import Kernel, KernelPlan

T = TypeVar("T")


@dataclass(frozen=True)
class Depth:
    """How far fusions are taken.

    builds: kernels go through NVRTC; on_gpu: they run and are verified; seeds: runs with inputs of
    their own, the last one at other sizes where the kernels allow it; gpus: how many there are;
    slow: seconds beyond which a run fails.
    """

    builds: bool = True
    on_gpu: bool = False
    target: str = DEFAULT_TARGET
    seeds: tuple[int, ...] = (0, 1)
    gpus: int = 1
    slow: float = inf


@dataclass(frozen=True)
class Outcome:
    """What became of a run: ok, refused, undecided or failed.

    kind: what two failures share that have one cause; kernels: the kind of each; spills: bytes, of
    the kernel that spills most; fatal: the process is of no more use.
    """

    status: str
    stage: str = ""
    kind: str = ""
    message: str = ""
    schedulers: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    resized: bool = False
    spills: int = 0
    fatal: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def signature(self) -> str:
        """Return stage and kind."""
        return f"{self.stage}: {self.kind}"


class Rejected(Exception):
    """A result that is wrong, slow or spilled, with what to report."""

    def __init__(self, kind: str, message: str, *, undecided: bool = False) -> None:
        """Keep what to report."""
        super().__init__(message)
        self.kind, self.message, self.undecided = kind, message, undecided


class Trials:
    """Takes runs through the stages; keeps the device and what was built last."""

    def __init__(self, depth: Depth, gpu: int = 0) -> None:
        """Open no device yet; `gpu` is its number."""
        self.depth, self.gpu = depth, gpu
        self._device: Device | None = None
        self._loaded = 0
        self._built: dict[tuple[str, str], Any] = {}

    def close(self) -> None:
        """Give the device back."""
        if self._device is not None:
            self._device.close()
            self._device = None

    def perform(self, run: Run) -> Outcome:
        """Return what becomes of a run; nothing is raised but what ends the process."""
        trial = Trial(self, run)
        try:
            trial.go()
        except Exception as error:
            return trial.failed(error)
        return trial.outcome("ok")

    def device(self) -> Device:
        """Return the device; a new context now and then gives back what modules take."""
        from fusec.run.device import Device

        if self._loaded > 400:
            self.close()
        if self._device is None:
            self._device, self._loaded = Device(self.gpu), 0
        self._loaded += 1
        return self._device

    def artifacts(self, sources: Sequence[Source]) -> dict[tuple[str, str], Any]:
        """Return built kernels; neighbouring runs share most of theirs."""
        return {(s.name, self.depth.target): self._artifact(s) for s in sources}

    def _artifact(self, source: Source) -> Any:
        from fusec.run.build import build
        from fusec.run.cache import Cache

        key = (source.name, source.text)
        if key not in self._built:
            if len(self._built) >= 64:
                self._built.clear()
            built = build([source], [self.depth.target], 1, cache=Cache(None))
            self._built[key] = built[source.name, self.depth.target]
        return self._built[key]


class Trial:
    """One run on its way: the stage that it is in, and the time of each."""

    def __init__(self, trials: Trials, run: Run) -> None:
        """Begin before the first stage."""
        self.trials, self.run, self.depth = trials, run, trials.depth
        self.stage, self.seconds = "", dict[str, float]()
        self.schedulers: tuple[str, ...] = ()
        self.kernels: tuple[str, ...] = ()
        self.resized, self.spills = False, 0

    def at(self, stage: str, function: Callable[[], T]) -> T:
        """Return what a stage returns, and keep its time."""
        self.stage, start = stage, time.perf_counter()
        try:
            return function()
        finally:
            spent = time.perf_counter() - start
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent

    def compile(self) -> driver.Compilation:
        """Take the run through the stages up to the host program; return what came of it."""
        fusion = self.at("text", lambda: reread(self.run.fusion))
        options = CompileOptions(
            targets=(self.depth.target,), targets_given=True, without=self.run.without, jobs=1
        )
        program = driver.Compilation(fusion, options)
        self.at("passes", lambda: program.fusion)
        segmented = self.at("segment", lambda: program.segmented)
        self.schedulers = tuple(s.scheduler for s in segmented.segments)
        if not self.depth.on_gpu:
            self.at("segments", lambda: compare_segments(fusion, segmented))
        self.at("schedule", lambda: program.plans)
        self.at("codegen", lambda: program.kernel_sources)
        self.kernels = tuple(kernel_kind(k, p) for p in program.plans for k in p.kernels)
        self.at("lower", lambda: _check_outputs(program))
        return program

    def go(self) -> None:
        """Take the run through every stage that the depth asks for."""
        program = self.compile()
        fusion = program.original
        if self.depth.builds:
            package = self.at("build", lambda: self._build(program))
            if package.program is not program:
                self.at("lower", lambda: _check_outputs(package.program))
            if self.depth.on_gpu:
                self._run(fusion, package.program.host, package.cubins(self.depth.target))
        slow = sum(self.seconds.values())
        if slow > self.depth.slow:
            longest = max(self.seconds, key=lambda s: self.seconds[s])
            raise Rejected(f"slow {longest}", f"{slow:.0f} s, {longest} the longest stage")

    def _build(self, program: driver.Compilation) -> driver.Package:
        from fusec.run.spills import SPILL_LIMIT

        package = driver.build(program, make=self.trials.artifacts)
        self.spills = max((a.spill_bytes for a in package.artifacts.values()), default=0)
        for (name, _), artifact in package.artifacts.items():
            # A schedule that was asked for may need more registers than there are.
            if artifact.spill_bytes > SPILL_LIMIT and not self.run.fusion.schedules:
                raise Rejected("spills", f"{name} spills {artifact.spill_bytes} bytes")
        return package

    def _run(self, fusion: Fusion, program: HostProgram, cubins: Mapping[str, bytes]) -> None:
        from fusec.run.execute import Executable

        device = self.trials.device()
        executable = self.at("run", lambda: Executable(device, program, cubins))
        for number, seed in enumerate(self.depth.seeds):
            sizes = self.at("inputs", lambda: choose_sizes(fusion))
            if number and number == len(self.depth.seeds) - 1:
                other = self.at("inputs", lambda s=seed: other_sizes(fusion, program, s))
                self.resized, sizes = other is not None, other or sizes
            inputs = self.at("inputs", lambda s=seed, z=sizes: random_inputs(fusion, z, s))
            outputs = self.at("run", lambda i=inputs, z=sizes: _outputs(executable, i, z))
            if not number and is_repeatable(fusion):
                again = self.at("run", lambda i=inputs, z=sizes: _outputs(executable, i, z))
                check_same(outputs, again)
            found = (inputs, outputs, sizes, seed, driver.model_of(program, sizes))
            self.at("verify", lambda f=found: verify_outputs(fusion, *f))
        self._run_integers(fusion, program, executable)

    def _run_integers(self, fusion: Fusion, program: HostProgram, executable: Any) -> None:
        """Run once more where sums of integers are exact: results must agree to the bit."""
        sizes, seed = choose_sizes(fusion), self.depth.seeds[0]
        exact = self.at("inputs", lambda: exact_outputs(fusion, sizes))
        model = driver.model_of(program, sizes)
        if not exact or not model.keeps_whole_numbers:
            return
        inputs = self.at("inputs", lambda: random_inputs(fusion, sizes, seed, "integers"))
        outputs = self.at("run", lambda: _outputs(executable, inputs, sizes))
        found = (inputs, outputs, sizes, seed, model, exact)
        self.at("verify", lambda: verify_outputs(fusion, *found))

    def outcome(self, status: str, kind: str = "", message: str = "", **facts: Any) -> Outcome:
        """Return the outcome with what is known so far."""
        return Outcome(
            status, self.stage, kind, message, self.schedulers, self.kernels, self.resized,
            self.spills, seconds=self.seconds, **facts,
        )  # fmt: skip

    def failed(self, error: Exception) -> Outcome:
        """Return what an error in a stage means."""
        if isinstance(error, Rejected):
            status = "undecided" if error.undecided else "failed"
            return self.outcome(status, error.kind, error.message)
        if isinstance(error, Unsupported):
            notes = "; ".join(error.diagnostic.notes)
            return self.outcome("refused", error.diagnostic.message, notes)
        if isinstance(error, FusecError) and error.exit_code == 2 and self.run.fusion.pins:
            # Not every segment can be: that is told in the same way as a wrong file.
            return self.outcome("refused", "pin", error.diagnostic.message)
        internal = isinstance(error, InternalError)
        fault = internal and "the GPU reports" in error.diagnostic.message
        message = "".join(traceback.format_exception(error))[-6000:]
        if isinstance(error, FusecError):
            message = error.render() + "\n" + message
        return self.outcome("failed", kind_of(error), message, fatal=fault)


def kernel_kind(kernel: Kernel, plan: KernelPlan) -> str:
    """Return the template of a kernel, and what else tells kernels of products apart."""
    of: Any = (kernel.of or plan).parameters
    words = [kernel.template]
    words += [name for name in ("staged", "swap_ab", "ping_pong") if getattr(of, name, False)]
    if getattr(of, "splits", 1) > 1:
        words.append(str(getattr(of, "split_method", "split")))
    return " ".join(words)


def check_same(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """Raise Rejected where two runs on the same inputs gave other bits."""
    changed = [n for n, a in first.items() if _bits(a) != _bits(second[n])]
    if changed:
        raise Rejected("changes", f"{', '.join(changed)} differ between two runs")


def _bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def kind_of(error: Exception) -> str:
    """Return what errors with one cause have in common: type, place, and message without names."""
    if isinstance(error, CompileError):
        message = error.diagnostic.message
        first = next((x for x in error.log.splitlines() if "error" in x), message)
        return "CompileError " + general(first.partition("error")[2])
    if isinstance(error, RecursionError):
        # Where the stack ends is chance.
        return "RecursionError"
    trace = traceback.extract_tb(error.__traceback__)
    place = f"{trace[-1].filename.rpartition('/')[2]}:{trace[-1].name}" if trace else ""
    message = f": {general(error.diagnostic.message)}" if isinstance(error, FusecError) else ""
    return f"{type(error).__name__} in {place}{message}"


def general(message: str) -> str:
    """Return a message without its names and numbers."""
    quiet = re.sub(r"`[^`]*`|\"[^\"]*\"|'[^']*'", "_", message)
    return re.sub(r"\d+", "#", quiet)[:120].strip()


def reread(fusion: Fusion) -> Fusion:
    """Return a fusion as its text reads back; InternalError where that is another one."""
    text = to_text(fusion)
    again = read_text(text, "fuzz.yaml")
    if again != fusion:
        raise Rejected("text", "the text reads back as another fusion")
    # Plans are made for the strides that random inputs have.
    sizes = choose_sizes(again)
    dims = tuple(replace(d, default=sizes[d.name]) for d in again.dims)
    return replace(again, source="", dims=dims)


def compare_segments(fusion: Fusion, segmented: Any) -> None:
    """Raise Rejected unless the segments, one after the other, compute what the fusion does."""
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 0)
    expected = evaluate(fusion, inputs, sizes)
    found = run_segments(segmented, inputs, sizes)
    after = [o for o in segmented.fusion.outputs if o.part is None or o.part.index == 0]
    pairs = [
        (before.value, whole_name(output))
        for before, output in zip(fusion.outputs, after, strict=True)
    ]
    if all(np.array_equal(expected[o.name], found[s], equal_nan=True) for o, s in pairs):
        return
    # Sums in another order may differ a little, as a kernel's would.
    with np.errstate(all="ignore"):
        outputs = {o.name: np.asarray(found[s]).astype(o.dtype.numpy) for o, s in pairs}
    verify_outputs(fusion, inputs, outputs, sizes, 0)


def _check_outputs(program: driver.Compilation) -> None:
    """Raise Rejected where the program has other outputs than the fusion."""
    names = tuple(o.value.name for o in program.original.outputs)
    if program.host.outputs != names:
        raise Rejected("outputs", f"the program returns {program.host.outputs}, not {names}")


def _outputs(executable: Any, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    with executable.bind(inputs, sizes) as bound:
        bound.reset()
        bound.run()
        return bound.outputs()


def verify_outputs(
    fusion: Fusion,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    seed: int,
    model: Model | None = None,
    exact: Collection[str] = (),
) -> None:
    from fusec.reference.verdict import compare

    verdict = compare(fusion, sizes, inputs, outputs, seed=seed, model=model)
    inexact = verdict.inexact(exact)
    if inexact:
        raise Rejected("inexact", f"{', '.join(inexact)} of integers\n{verdict.text()}")
    if verdict.ok:
        return
    wrong = [o for o in verdict.outputs if o.wrong]
    story = f"seed {seed}, sizes {dict(sizes)}\n{verdict.text()}"
    if not wrong:
        raise Rejected("undecided", story, undecided=True)
    raise Rejected("unwritten" if any(o.unwritten for o in wrong) else "mismatch", story)
