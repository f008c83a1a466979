"""Benchmarks without a GPU: what moves, who takes turns, what figures and counters say."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import build
from draws import drawn
from fake_device import FakeDevice, argument, array_at
from guards import Guarded
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from fusec import driver
from fusec.bench import counters, timer
from fusec.bench.bound import BoundWork
from fusec.bench.counters import (
    READ,
    STORED,
    WRITTEN,
    Counted,
    CountedSegment,
    compare_traffic,
    profile,
    read_csv,
)
from fusec.bench.data import Inputs
from fusec.bench.figures import Error, Figures, error_of, line_of
from fusec.bench.fill import PERIOD, repeat
from fusec.bench.session import launch_times
from fusec.bench.streaming import (
    NEVER,
    VARIANTS,
    Limit,
    Variant,
    hold_text,
    parts_of,
    sources,
    text_of,
)
from fusec.bench.timer import Contender, Timer, Times
from fusec.bench.work import Segment, Work
from fusec.bench.work import build as build_work
from fusec.cli import run_main
from fusec.diagnostics import Unsupported
from fusec.ir.dim import dim
from fusec.ir.dtype import I64, U32, U64
from fusec.options import CompileOptions
from fusec.run.build import build as build_kernels
from fusec.schedule.plan import Kernel, ScalarArgument, TensorArgument

# -- the kernels that only move bytes


@drawn(100)
@given(st.sampled_from(VARIANTS), st.integers(0, 10**10), st.integers(0, 10**10))
def test_both_streams_end_together_with_all_their_tiles(
    variant: Variant, read: int, written: int
) -> None:
    parts = parts_of(variant, read, written)
    assert parts.reads * 16 - read in range(16)
    for words, share in ((parts.reads, parts.read_share), (parts.writes, parts.write_share)):
        own = -(-words // variant.tile)
        assert parts.tiles * share >> 32 == own
        middle = (parts.tiles // 2) * share >> 32
        assert abs(middle - own / 2) <= 2  # evenly spread
        # A tile of the longer stream has one of this stream, or none.
        assert share <= 1 << 32


STREAM = Kernel(
    "stream",
    "",
    (dim(1), dim(1), dim(1)),
    (1, 1, 1),
    (
        TensorArgument("source", U32),
        TensorArgument("target", U32, written=True),
        *(ScalarArgument(name, I64) for name in ("reads", "writes", "tiles")),
        *(ScalarArgument(name, U64) for name in ("read_share", "write_share")),
        ScalarArgument("never", U32),
    ),
)


def move(variant: Variant, read: int, written: int, folder: Path, edit: Any = str) -> np.ndarray:
    """Return the words that a kernel writes on the host; those that it reads count from 1."""
    parts = parts_of(variant, read, written)
    memory = Guarded()
    memory.add("source", np.arange(1, 4 * parts.reads + 1, dtype=np.uint32))
    memory.add("target", np.full(4 * max(parts.writes, 1), NEVER, np.uint32))
    values: list[Any] = [ctypes.c_uint64(memory[name].ctypes.data) for name in memory]
    values += map(ctypes.c_int64, (parts.reads, parts.writes, parts.tiles))
    values += map(ctypes.c_uint64, (parts.read_share, parts.write_share))
    values.append(ctypes.c_uint32(NEVER))
    folder.mkdir(exist_ok=True)
    function = build(STREAM, text_of(variant), folder, edit)
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    shape = (min(3, parts.tiles), 1, 1, variant.threads, 1, 1)
    function(pointers, shape, 0, zones=memory.zones)
    memory.check(f"{variant.name}, {read} read and {written} written")
    return memory["target"][: 4 * parts.writes]


VARIANT = Variant(128, 2, streaming=True)


def test_a_copy_is_a_copy(tmp_path: Path) -> None:
    for variant in (VARIANT, Variant(128, 4, streaming=False)):
        for size in (16, 4096, 12345, 5 * 16 * variant.tile):
            words = 4 * -(-size // 16)
            assert (
                move(variant, size, size, tmp_path / variant.load) == np.arange(1, words + 1)
            ).all()


@pytest.mark.parametrize(("read", "written"), [(30000, 10000), (7000, 21111), (0, 9000), (9000, 0)])
def test_whatever_the_mix_every_word_is_written(read: int, written: int, tmp_path: Path) -> None:
    assert (move(VARIANT, read, written, tmp_path) != NEVER).all()


def test_a_share_that_is_rounded_down_loses_the_last_tile(tmp_path: Path) -> None:
    def edit(text: str) -> str:
        return text.replace("tile * share >> 32", "(tile * share - tile) >> 32")

    assert (move(VARIANT, 30000, 10000, tmp_path / "right") != NEVER).all()
    assert (move(VARIANT, 30000, 10000, tmp_path / "wrong", edit) == NEVER).any()


def test_the_kernels_that_measure_compile_without_spills() -> None:
    every = [s for s in sources() if s.name in ("hold", "stream_512x8", "stream_128x1_streaming")]
    built = build_kernels(every, ("sm_90a",))
    assert len(sources()) == 1 + len(VARIANTS)
    assert "globaltimer" in hold_text()
    assert all(a.spill_bytes == 0 and a.registers <= 64 for a in built.values())


# -- the timer


class Clock(FakeDevice):
    """Launches of the holding kernel and fills take time, and so do contenders by their name."""

    def __init__(self) -> None:
        """Start the clock."""
        super().__init__({})
        self.now, self.said = 0.0, list[str]()

    def take(self, name: str, milliseconds: float) -> None:
        """Let something take time."""
        self.said.append(name)
        self.now += milliseconds

    def fill(self, address: int, byte: int, size: int) -> None:
        """Write memory, in a time of its own."""
        super().fill(address, byte, size)
        self.take("flush", 10)

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Handle events, and launches of the kernel that waits."""
        if function == "cuEventCreate":
            return SimpleNamespace(at=0.0)
        if function == "cuEventRecord":
            arguments[0].at = self.now
        if function == "cuEventElapsedTime":
            return arguments[1].at - arguments[0].at
        if function == "cuLaunchKernel":
            self.take(arguments[0], 100)
        return None


def test_contenders_take_turns_behind_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer, "FLUSH_BYTES", 1 << 12)
    clock: Any = Clock()
    contenders = [Contender(n, lambda n=n, t=t: clock.take(n, t)) for n, t in (("a", 2), ("b", 3))]
    with Timer(clock, "hold") as timed:
        times = timed.race(contenders, repeats=4, warm_up=0.0)
        runs = clock.said[2 * timer.LEAST_WARM_UPS :]
    assert runs == [
        step for name in "abbaabba" for step in ("hold", "flush", name)
    ]  # each round begins with another one
    assert [(t.name, t.seconds) for t in times] == [("a", 2e-3), ("b", 3e-3)]
    assert [len(t.runs) for t in times] == [4, 4]
    assert not clock.blocks


# -- what runs: buffers, bound work, figures


def test_a_block_is_repeated_over_memory() -> None:
    device: Any = FakeDevice({})
    block = np.arange(7, dtype=np.uint16)
    address = device.allocate(100, "repeated")
    repeat(device, address, block, 100)
    assert (array_at(address, 50, np.uint16) == np.resize(block, 50)).all()


FILE = """
fusion: twice
dims: {N: 64}
inputs:
  x: f32[N]
  a: f32 = 2.0
ops:
  - y = mul(x, a)
outputs: [y]
"""


class Bench(FakeDevice):
    """A device whose one kernel doubles, and whose memory is the host's."""

    def __init__(self) -> None:
        """Have the kernel."""
        super().__init__({"kernel": self.double})
        self.driver.CUlaunchAttribute = lambda: SimpleNamespace(value=SimpleNamespace())

    def load(self, cubin: bytes, entry: str) -> Any:
        """Return the one kernel."""
        return "kernel"

    def unload(self, function: Any) -> None:
        """Nothing was loaded."""

    def double(self, pointers: Any) -> None:
        """Write twice the input."""
        x, y = (argument(pointers, k, ctypes.c_uint64) for k in (0, self.target))
        array_at(y, 64, np.float32)[:] = 2 * array_at(x, 64, np.float32)

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Have memory for the arena, and launch."""
        if function == "cuMemAllocAsync":
            return self.allocate(arguments[0], "arena")
        if function == "cuMemFreeAsync":
            return self.free(arguments[0])
        return super().call(function, *arguments, what=what)


def test_bound_work_runs_on_the_buffers_that_all_share(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(FILE)
    fusion = driver.load(str(path))
    work = build_work(fusion, CompileOptions())
    assert (work.read_bytes, work.written_bytes, work.sizes) == (256, 256, {"N": 64})
    assert work.kernels[0].registers > 0
    assert 0 < work.kernels[0].occupancy <= 1
    assert work.segments[0].read_bytes == work.segments[0].written_bytes == 256
    device: Any = Bench()
    names = [getattr(a, "name", "") for a in work.host.launches[0].arguments]
    device.target = names.index("y")
    with Inputs(device, fusion, work.sizes) as inputs, BoundWork(device, work, inputs) as bound:
        before = inputs.arrays()["x"].array.copy()
        bound.issue()
        assert bound.launches == 1
        assert (bound.outputs["y"].download(device) == 2 * before).all()
        expected = driver.reference(fusion, inputs.arrays(), work.sizes)
        assert error_of({"y": bound.outputs["y"].download(device)}, expected) == Error(0.0, 0.0)
        array_at(inputs.tensors["x"].address, 64, np.float32)[:] = 0
        inputs.fill()
        assert (inputs.arrays()["x"].array == before).all()
    assert not device.blocks
    assert PERIOD % 2 == 1


class Timed(Bench):
    """The same with a clock: each launch takes 2 ms, a flush 10."""

    def __init__(self) -> None:
        """Start the clock."""
        super().__init__()
        self.now = 0.0
        self.driver.cuEventDestroy = lambda event: None

    def double(self, pointers: Any) -> None:
        """Take the time of a launch."""
        super().double(pointers)
        self.now += 2

    def fill(self, address: int, byte: int, size: int) -> None:
        """Take the time of a flush."""
        super().fill(address, byte, size)
        self.now += 10

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Handle events."""
        if function == "cuEventCreate":
            return SimpleNamespace(at=0.0)
        if function == "cuEventRecord":
            arguments[0].at = self.now
            return None
        if function == "cuEventElapsedTime":
            return arguments[1].at - arguments[0].at
        return None if function == "cuEventSynchronize" else super().call(function, *arguments)


def test_launches_are_timed_alone_on_inputs_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusec.run.measure.FLUSH_BYTES", 1 << 12)
    monkeypatch.setattr("fusec.run.measure.WARMUP_SECONDS", 0.0)
    path = tmp_path / "twice.yaml"
    path.write_text(FILE)
    fusion = driver.load(str(path))
    work = build_work(fusion, CompileOptions())
    device: Any = Timed()
    device.target = [getattr(a, "name", "") for a in work.host.launches[0].arguments].index("y")
    with Inputs(device, fusion, work.sizes) as inputs, BoundWork(device, work, inputs) as bound:
        times = launch_times(bound, 3)
    assert [(k.segment, k.seconds) for k in times.kernels] == [("s0", 2e-3)]
    assert times.repeats == 3
    assert not device.blocks


def test_errors_are_relative_to_what_is_expected() -> None:
    expected = {"y": np.array([3.0, 4.0, np.inf])}
    assert error_of({"y": np.array([3.0, 4.5, np.inf])}, expected) == Error(0.1, 0.125)
    assert error_of({"y": np.array([3.0, 4.0, np.nan])}, expected).norm == np.inf


WORK = Work("w", "sm_90a", {"N": 4, "x.stride0": 1}, None, {}, 3000, 1000, (), ())  # type: ignore[arg-type]


def test_figures_are_shares_and_ratios() -> None:
    times = tuple(Times(n, (s, 2 * s, 3 * s), 1e-5) for n, s in (("fusec", 1e-3), ("peer", 3e-3)))
    figures = Figures(WORK, 2, Limit(1.5e-3, "256x4"), times, error=Error(1e-6, 2e-6))
    found = figures.as_dict("row")
    assert found["share"] == 0.75
    assert found["ratios"] == {"peer": 3.0}
    assert found["ms"] == 2.0
    assert found["compulsory_bytes"] == 4000
    assert found["sizes"] == {"N": 4}
    assert found["contenders"]["peer"] == {
        "ms": 6.0, "least_ms": 3.0, "most_ms": 9.0, "runs": 3, "issue_us": 10.0
    }  # fmt: skip
    assert json.loads(json.dumps(found)) == found
    assert line_of("row", replace(figures, error=None))[-2:] == ("-", "peer 3.00")
    page = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
    assert [k for k in found if f"`{k}`" not in page] == []
    assert [k for k in found["contenders"]["peer"] if f"`{k}`" not in page] == []


# -- counters


TABLE = f"""==PROF== Connected to process 1
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","rows(const float *)","{READ}","byte","2,000,000"
"0","rows(const float *)","{WRITTEN}","Kbyte","100"
"0","rows(const float *)","{STORED}","sector","31,250"
"1","rows(const float *)","{READ}","byte","1000"
"1","other","{READ}","byte","7"
"""


def test_the_table_of_the_profiler_is_read() -> None:
    assert read_csv(TABLE) == [
        ("rows", Counted(2_000_000, 100_000, 1_000_000)), ("other", Counted(7, 0, 0))
    ]  # fmt: skip
    assert read_csv("no table") == []


def test_more_than_a_twentieth_apart_is_a_finding() -> None:
    segment = Segment("s0", "pointwise", 60 << 20, 40 << 20, 1e-3)
    predicted = segment.read_bytes
    for more, finding in ((1.0, False), (1.08, False), (1.09, True), (0.9, True)):
        found = CountedSegment(segment, Counted(int(predicted * more), 0, segment.written_bytes), 1)
        assert found.is_finding == finding, more
    tiny = replace(segment, read_bytes=4096, written_bytes=4096)
    assert not CountedSegment(tiny, Counted(100_000, 0, 4096), 1).is_finding


def test_bytes_stand_beside_those_of_the_own_segment() -> None:
    host = SimpleNamespace(launches=[SimpleNamespace(kernel="rows", segment="s0")])
    segments = tuple(Segment(n, "reduction", 10, 10, 1e-3) for n in ("s0", "s1"))
    work: Any = SimpleNamespace(host=host, segments=segments)
    (found,) = compare_traffic(work, [*read_csv(TABLE), ("rows", Counted(5, 6, 7))])
    assert found.segment.name == "s0"
    assert found.counted == Counted(2_000_005, 100_006, 1_000_007)
    assert found.kernels == 2


def test_without_the_profiler_counters_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_main(["bench", "--counters", str(ROOT / "examples" / "softmax.yaml")]) == 3
    assert "`ncu` is not on PATH" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - no", "does not permit"),
        ("==ERROR== no GPU", "reported no counters"),
    ],
)
def test_a_profiler_that_may_not_count_says_why(
    said: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "ncu"
    tool.write_text(f"#!/bin/sh\necho '{said}'\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(Unsupported, match=reason):
        profile(["run"])
    assert counters.find_profiler() == str(tool)
