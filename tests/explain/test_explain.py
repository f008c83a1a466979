"""The query: its keys, its figures by hand, and that nothing but the fusion is needed for it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from draws import times
from paths import ROOT

import fusec
from fusec import driver
from fusec.cli import run_main
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.explain.facts import Break, ModuleFacts, Segmentation
from fusec.explain.record import Questions, explain
from fusec.explain.text import WIDTH, explanation, registers
from fusec.explain.units import bytes_text, share_text, time_text
from fusec.hostir.sizes import parse_dim
from fusec.index.domain import OF_ANOTHER_KIND
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.segment.segmented import tensor_bytes
from fusec.segment.traffic import traffic
from fusec.target import find
from tools.draw import draw_runs

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SEVERAL = ("cross_entropy", "seed_2146")

TEXT = """
fusion: two
dims: {B: 64, H: 512}
inputs: {x: "bf16[B, H]"}
ops:
  - t = sum(cast(x, f32), dims=[1])
  - y = cast(segment_set(t), bf16)
outputs: [y]
"""

KEYS = {
    "": "schema fusion target mesh sizes aliases segments crossing rematerialised saved "
    "saved_bytes bytes floor_bytes peak_bytes seconds share tensor_share decisions choices exact "
    "modules breaks summation",
    "segments": "id name scheduler pin nodes inputs outputs bytes floor_bytes l2_bytes "
    "workspace_bytes seconds time bound share tensor_share ctas efficiency kernels occupancy "
    "refusals why orders overrides chosen tuned iterations exchange specialised host "
    "module",
    "segments.specialised": "dim size rule because way_out",
    "segments.occupancy": "name threads registers spills shared_bytes resident_blocks "
    "built_registers instructions",
    "segments.occupancy.instructions": "per_thread levels not_counted",
    "segments.occupancy.instructions.levels": "loop depth trips expression per_trip",
    "segments.nodes": "op inputs outputs text",
    "segments.refusals": "scheduler rule reason near",
    "crossing": "name shape dtype producer consumers is_output bytes bytes_expr",
    "decisions": "action subject because refusals",
    "choices": "dim first last segments refused seconds",
    "choices.segments": "scheduler outputs",
    "exact": "compulsory_bytes lower_bytes proven gap method segments",
}


BY_NAME = ("summation", "sizes", "time", "target", "aliases", "per_thread", "per_trip")
"""Keys whose values have keys that follow from the program."""


class Explained(NamedTuple):
    record: Segmentation
    program: Compilation


def explained(
    fusion: Fusion, questions: Questions | None = None, options: CompileOptions | None = None
) -> Explained:
    program = Compilation(fusion, options or CompileOptions())
    return Explained(explain(program, questions), program)


def answer(name: str, **more: Any) -> dict[str, Any]:
    return fusec.segmentation(ROOT / "examples" / f"{name}.yaml", **more).as_dict()


def test_keys_are_fixed() -> None:
    data = answer("cross_entropy", ranges={"T": (1, 2)}, exact=True)
    for place, keys in KEYS.items():
        records: list[Any] = [data]
        for step in filter(None, place.split(".")):
            found = [r[step] for r in records]
            records = [x for f in found for x in (f if isinstance(f, list) else [f])]
        assert records, place
        for record in records:
            assert list(record) == keys.split(), place
    assert data["schema"] == 2
    times = {tuple(s["time"]) for s in data["segments"]}
    resources = "memory l2 arithmetic special_functions tensor_cores launch"
    assert times == {tuple(resources.split())}


def keys_in(data: Any) -> set[str]:
    if isinstance(data, list):
        return {k for item in data for k in keys_in(item)}
    if not isinstance(data, dict):
        return set()
    inner = {k: v for k, v in data.items() if k not in BY_NAME}
    return {*data} | {k for v in inner.values() for k in keys_in(v)}


def test_every_key_is_documented() -> None:
    page = (ROOT / "docs" / "query.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|([^|]*)\|", page, re.MULTILINE)
    known = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    words = set(re.findall(r"`([\w.]+)`", page))
    data = answer("cross_entropy", ranges={"T": (1, 2)}, exact=True)
    found = keys_in(data)
    nested = {"arch", "device", "cost_of", "rule", "reason", "op", "text"}
    assert nested | set(data["segments"][0]["time"]) <= words
    assert found - known - nested == set()
    found |= {f.name for record in (ModuleFacts, Break) for f in fields(record)}  # of models
    assert known - found <= {"saved_bytes", "role"}, "documented, but never there"


def test_the_example_of_the_page_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "query.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(code, {})
    assert capsys.readouterr().out == "loss ('T',) 4096 T * 4\n"


def test_the_figures_of_two_segments_by_hand() -> None:
    found = explained(read_text(TEXT)).record
    first, second = found.segments
    assert [s.scheduler for s in found.segments] == ["reduction", "pointwise"]
    assert [n.text for n in second.nodes] == ["y = cast(segment_set_1, dtype=bf16)"]
    (tensor,) = found.crossing
    assert (tensor.name, tensor.shape, tensor.dtype) == ("segment_set_1", ("B",), "f32")
    assert (tensor.bytes, tensor.bytes_expr) == (64 * 4, "B * 4")
    assert (tensor.producer, tensor.consumers, tensor.is_output) == (0, (1,), False)
    assert first.bytes == 64 * 512 * 2 + 64 * 4
    assert second.bytes == 64 * 4 + 64 * 2
    assert found.bytes == first.bytes + first.workspace_bytes + second.bytes
    assert found.floor_bytes == 64 * 512 * 2 + 64 * 2
    # The output is there from the start, the crossing tensor until the second segment has read it.
    assert found.peak_bytes == 64 * 2 + 64 * 4 + first.workspace_bytes // 2
    assert found.seconds == pytest.approx(first.seconds + second.seconds)
    (boundary,) = [d for d in found.decisions if d.action == "boundary"]
    assert boundary.subject == ("s0", "s1")
    assert "segment_set" in boundary.because


@pytest.mark.parametrize("name", SEVERAL)
def test_every_way_of_asking_gets_the_same_answer(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "examples" / f"{name}.yaml"
    expected = fusec.segmentation(path).json()
    assert fusec.segmentation(str(path)).json() == expected
    assert fusec.segmentation(driver.load(str(path))).json() == expected
    assert run_main(["explain", str(path), "--json"]) == 0
    assert capsys.readouterr().out == expected + "\n"
    assert json.loads(expected) == fusec.segmentation(path).as_dict()


def test_a_definition_is_asked_like_a_file() -> None:
    with fusec.FusionDefinition() as fd:
        x = fd.define_tensor(shape=[64, 512], contiguity=[True, True], dtype=fusec.DataType.Float)
        fd.add_output(fd.ops.sum(fd.ops.exp(x), dims=[1]))
    found = fusec.segmentation(fd, target="sm_80")
    assert found.target["arch"] == "sm_80"
    assert [s.scheduler for s in found.segments] == ["reduction"]
    assert found.segments[0].inputs == (fd.fusion().inputs[0].value.name,)


def lifetimes(found: Explained) -> int:
    """Return the peak from the segments alone: crossing tensors live from writer to last reader."""
    record, sizes = found.record, found.program.segmented.fusion.hints
    views = {v.name for plan in found.program.plans for v in plan.views}
    outputs = [o for o in found.program.segmented.fusion.outputs if o.value.name not in views]
    held = sum(tensor_bytes(o.value, sizes) for o in outputs if o.alias is None)
    scratch = sum(
        w.size.evaluate(sizes) * w.dtype.size for p in found.program.plans for w in p.workspaces
    )
    steps = [
        sum(
            c.bytes
            for c in record.crossing
            if not c.is_output and c.producer <= s.id <= max(c.consumers) and c.name not in views
        )
        for s in record.segments
    ]
    return held + scratch + max(steps)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_the_figures_of_the_examples_hang_together(path: Path) -> None:
    found = explained(driver.load(str(path)))
    record = found.record
    assert record.peak_bytes == lifetimes(found)
    assert_consistent(found)
    assert {n for s in record.segments for node in s.nodes for n in node.outputs} == {
        v.name for n in found.program.segmented.fusion.nodes for v in n.outputs
    }
    assert record.floor_bytes <= traffic(found.program.segmented.fusion)


def assert_consistent(found: Explained) -> None:
    record = found.record
    assert record.floor_bytes <= record.bytes
    assert record.bytes == sum(s.bytes + s.workspace_bytes for s in record.segments)
    for segment in record.segments:
        assert 0 <= segment.floor_bytes <= segment.bytes
        slowest = max(segment.time.values())
        assert segment.seconds >= slowest * (1 - 1e-12)
        if segment.kernels:
            assert segment.time[segment.bound] == slowest
            assert {r.scheduler for r in segment.refusals} & {segment.scheduler} == set()
    sizes = dict(found.program.segmented.fusion.hints)
    made = {o: s.id for s in record.segments for o in s.outputs}
    for tensor in record.crossing:
        assert made[tensor.name] == tensor.producer
        assert all(tensor.producer < c for c in tensor.consumers)
        assert all(tensor.name in record.segments[c].inputs for c in tensor.consumers)
        scalars = frozenset(i.value.name for i in found.program.segmented.fusion.inputs)
        assert parse_dim(tensor.bytes_expr, scalars).evaluate(sizes) == tensor.bytes


def test_random_fusions_hang_together_and_can_be_read() -> None:
    crossing = 0
    for number in range(times(6)):
        for run in draw_runs(5, number):
            options = CompileOptions(without=run.without)
            try:
                found = explained(run.fusion, options=options)
            except FusecError:
                continue
            assert_consistent(found)
            crossing += len(found.record.crossing)
            assert json.loads(found.record.json()) == found.record.as_dict()
            assert_readable(explanation(found.record))
    assert crossing > times(6) // 3


def assert_readable(text: str) -> None:
    for line in text.splitlines():
        # A single word, such as a long name, is not broken.
        assert len(line) <= WIDTH or len(line.split()) <= 3, line
        assert line == line.rstrip()


def test_values_that_are_recomputed_are_told() -> None:
    from dataclasses import replace

    from fusec.explain.query import describe
    from fusec.segment.segmented import Rematerialised

    base = Compilation(read_text(TEXT), CompileOptions()).segmented
    value = base.fusion.nodes[0].output
    told = Rematerialised(value, (1,), 4096, "a cast costs less than reading it")
    record = describe(replace(base, rematerialised=(told,)), find("sm_90a"), peak_bytes=0)
    (again,) = record.as_dict()["rematerialised"]
    assert again == {
        "name": value.name, "shape": ["B", "H"], "dtype": "f32", "segments": [1],
        "saved_bytes": 4096, "because": "a cast costs less than reading it",
    }  # fmt: skip
    assert f"{value.name} f32[B, H] in s1, saves 4.10 kB: a cast costs less" in explanation(record)


def test_the_text_tells_bytes_bounds_refusals_and_boundaries() -> None:
    record = fusec.segmentation(ROOT / "examples" / "cross_entropy.yaml", exact=True)
    text = explanation(record)
    words = " ".join(text.split())
    every = " ".join(explanation(record, every=True).split())
    assert text.startswith("cross_entropy on H200 (sm_90a): 2 segments, 2 kernels\n")
    for segment in record.segments:
        assert f"\n{segment.name} {segment.scheduler}\n" in text
        assert f"{bytes_text(segment.bytes)}, compulsory {bytes_text(segment.floor_bytes)}" in words
        assert f"{time_text(segment.seconds)}, bound by {segment.bound}" in words
        for refusal in segment.refusals:
            assert refusal.near == (refusal.reason in words)
            assert refusal.reason in every
            assert f"({refusal.rule})" in every
    assert "Not fused\n  s0 -> s1\n" in text
    assert "loss f32[T], 1.02 kB, 1 reader, an output anyway" in words
    assert "because reduction: the reductions reduce different axes" in words
    assert "reduction, inner_persistent, outer_persistent: the reductions reduce" in every
    assert "not shown: use `--all`" in words
    assert "--all" not in every
    assert "is proven minimal" in words
    assert "over all segmentations of this definition that compute reductions" in words
    assert_readable(text)


def test_pins_are_named() -> None:
    record = fusec.segmentation(ROOT / "examples" / "seed_2146.yaml")
    assert [s.pin for s in record.segments] == ["first", "second"]
    assert {c.bytes for c in record.crossing} <= {56 * 1024 * 1024 * 4}
    assert "pinned as `first`" in explanation(record)


def test_what_is_written_in_place_is_told() -> None:
    text = (
        "fusion: f\ndims: {B: 64}\ninputs: {x: 'f32[B]', z: 'f32[B]'}\n"
        "ops:\n  - y = add(x, z)\noutputs: [{y: {alias: z}}]\n"
    )
    record = fusec.segmentation(read_text(text))
    assert record.aliases == {"y": "z"}
    assert record.peak_bytes == 0
    assert record.floor_bytes == record.bytes == 3 * 64 * 4
    assert "    in place      y into z\n" in explanation(record)


def test_the_gap_is_told() -> None:
    from dataclasses import replace

    from fusec.explain.facts import Exact

    record = fusec.segmentation(ROOT / "examples" / "seed_2146.yaml")
    fewer = Exact(record.bytes - 5_000_000, record.bytes // 4, False, 0.75, "states", ())
    text = " ".join(explanation(replace(record, exact=fewer)).split())
    lower, best = bytes_text(record.bytes // 4), bytes_text(record.bytes - 5_000_000)
    assert f"gap at most 75.0 %: lower bound {lower} (states); {best}" in text
    assert "is possible without pins" in text


def test_reasons_that_agree_are_told_once() -> None:
    from fusec.explain.facts import Refused, Taken
    from fusec.explain.refusals import reasons

    said = tuple(
        Refused(scheduler, "operation", reason, near)
        for scheduler, reason, near in (
            ("matmul", "`x` is computed; it reads memory", True), ("scan", "no scan", False),
            ("pointwise", "no scan", False), ("sort", "none", False),
        )
    )  # fmt: skip
    decision = Taken("boundary", ("s0", "s1"), "as text", said)
    computed = "matmul: `x` is computed; it reads memory (operation)"
    assert reasons(decision) == [computed]
    assert reasons(decision, {"sort"}) == [computed, "sort: none (operation)"]
    assert reasons(decision, every=True) == [
        computed, "scan, pointwise: no scan (operation)", "sort: none (operation)",
    ]  # fmt: skip
    assert reasons(Taken("split", ("y",), "", said[1:])) == [
        "no scheduler supports the whole group"
    ]
    plain = "one kernel takes 3 us; apart: 2 us"
    assert reasons(Taken("boundary", ("s0", "s1"), plain)) == [plain]
    assert reasons(Taken("boundary", ("s0", "s1"), "")) == []


def test_decisions_of_one_value_are_told_together() -> None:
    from fusec.explain.facts import Taken

    record = fusec.segmentation(ROOT / "examples" / "softmax.yaml")
    slower = [Taken("undo", ("y",), f"split_k_{k}: 3 us rather than 2 us") for k in (2, 4, 2)]
    text = explanation(replace(record, decisions=tuple(slower)))
    assert text.count("undo") == 1
    assert [text.count(f"split_k_{k}") for k in (2, 4)] == [1, 1]


def test_rules_of_another_kind_are_rules() -> None:
    """A rule of another name would count as near."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "fusec").rglob("*.py")]
    given = {rule for text in texts for rule in re.findall(r'Refusal\(\s*"([^"]+)"', text)}
    assert given >= OF_ANOTHER_KIND


def test_units() -> None:
    assert [bytes_text(n) for n in (0, 999, 1000, 57_344, 352_321_536, 2_010_000_000_000)] == [
        "0 B", "999 B", "1 kB", "57.3 kB", "352 MB", "2.01 TB",
    ]  # fmt: skip
    assert bytes_text(999_600) == "1.00 MB"
    assert [time_text(s) for s in (0, 2.5e-6, 61.23e-6, 0.00125, 2.0)] == [
        "0 us", "2.50 us", "61.2 us", "1.25 ms", "2 s",
    ]  # fmt: skip
    shares = [share_text(1, 3), share_text(0, 0), share_text(1, 1000), share_text(0, 7)]
    assert shares == ["33 %", "100 %", "<1 %", "0 %"]


@pytest.mark.nightly  # tests/project/test_start_up.py asks without options
@pytest.mark.parametrize("flags", [("--json",), ("--sizes", "T=1..9")])
def test_neither_a_gpu_nor_a_compiler_is_asked(flags: tuple[str, ...]) -> None:
    arguments = ["explain", "examples/cross_entropy.yaml", *flags]
    code = (
        "import sys\nfrom fusec.cli import run_main\n"
        f"assert run_main({arguments!r}) == 0\n"
        "print('MODULES', *sorted({m.split('.')[0] for m in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    loaded = set(done.stdout.rsplit("MODULES", 1)[1].split())
    assert not loaded & {"cuda", "safetensors", "torch"}
    # The record has counts of instructions, which rendering a kernel gives.
    assert ("jinja2" in loaded) == ("--json" in flags)


JOINT = """
fusion: joint
dims: {B: 64, H: 512}
inputs: {x: "f32[B, H]", dy: "f32[B, H]"}
ops:
  - e = exp(x)
  - y = sum(e, dims=[1])
  - dx = mul(dy, e)
outputs: [y, dx]
phases:
  forward: [y]
  backward: {inputs: [dy], outputs: [dx]}
"""


def test_the_phases_of_a_joint_graph_say_what_they_keep() -> None:
    joint = read_text(JOINT)
    later = fusec.segmentation(joint, part="joint_backward")
    kept = {(s.name, s.role) for s in later.saved}
    # `x` lies in memory anyway, and a second exp is cheaper than storing the first.
    assert kept == {("x", "input")}
    assert later.saved_bytes == 64 * 512 * 4
    assert "131 kB between phases: x 131 kB" in explanation(later)
    with pytest.raises(FusecError) as caught:
        fusec.segmentation(joint)
    assert caught.value.diagnostic.help == "part: one of joint_forward, joint_backward"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--sizes", "T"], "--sizes T: expected NAME=FIRST..LAST"),
        (["--sizes", "T=1..x"], "--sizes T=1..x: expected NAME=FIRST..LAST"),
        (["--sizes", "T=9..1"], "--sizes T=9..1: expected 0 <= FIRST <= LAST"),
        (["--sizes", "Q=1..9"], "`cross_entropy` has no dim `Q`"),
        (["--html", ""], "--html is empty"),
        (["--html", "examples"], "`examples` is a directory"),
        (["--html", "nowhere/a.html"], "cannot write `nowhere/a.html`: No such file"),
        (["--target", "sm_10"], "unknown target `sm_10`"),
    ],
)
def test_wrong_usage_is_told(
    given: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert run_main(["explain", "examples/cross_entropy.yaml", *given]) == 2
    assert message in capsys.readouterr().err


def test_what_is_no_fusion_is_refused() -> None:
    with pytest.raises(FusecError, match="takes a Fusion, a FusionDefinition or a path, not int"):
        fusec.segmentation(3)
    with pytest.raises(FusecError, match="unknown fusion `other`"):
        fusec.segmentation(read_text(TEXT), part="other")


def test_registers_are_predicted_and_real_ones_stand_beside_them_where_kernels_are_built() -> None:
    program = Compilation(read_text(TEXT, "two.yaml"), CompileOptions(targets=("sm_90a",)))
    (told, _), (built, _) = (
        [s.occupancy[0] for s in explain(program, Questions({}, build=build)).segments]
        for build in (False, True)
    )
    assert told.built_registers is None
    assert built.built_registers is not None
    assert built.built_registers <= told.registers + 8 == built.registers + 8
    assert f"about {told.registers} registers/thread, {told.threads} threads/block" in registers(
        told
    )
    numbers = f"{built.built_registers} (about {told.registers} predicted) registers/thread"
    assert numbers in registers(built)


FIXED = """
fusion: fixed
dims: {B: 64, H: 512, K: 64}
inputs: {x: "f32[B, H]", w: "f32[H, K]"}
ops:
  - r = sum(x, dims=[1])
  - c = sum(x, dims=[0])
  - m = matmul(x, w)
  - t = permute(x, [1, 0])
outputs: [r, c, m, t]
segments: {rows: [r], columns: [c], product: [m], turned: [t]}
"""


def test_specialised_dims_say_what_needs_them_and_what_frees_them() -> None:
    """Of each segment exactly the dims that its plan has as numbers, with the rule of each."""
    record, program = explained(read_text(FIXED))
    found = {s.pin: {f.dim: f for f in s.specialised} for s in record.segments}
    planned = {s.pin: {*p.specialised} for s, p in
               zip(program.segmented.segments, program.plans, strict=True)}  # fmt: skip
    assert {pin: {*dims} for pin, dims in found.items()} == planned
    assert found["rows"]["H"].rule == "reduced"
    assert "`r` (sum) reduces over it" in found["rows"]["H"].because
    assert "B" not in found["rows"]
    assert found["product"]["H"].rule == "reduced"
    assert found["product"]["K"].rule == "inner"
    assert "`w`, `m`" in found["product"]["K"].because
    assert all(f.way_out for dims in found.values() for f in dims.values())
    text = explanation(record)
    assert "    specialized   H = 512: `r` (sum) reduces over it, in a loop" in text
    assert "compile --set H=SIZE,SIZE" in text


def test_what_is_said_to_free_an_inner_dim_does() -> None:
    """As the leading dim of every tensor it stays open."""
    text = "fusion: f\ndims: {B: 64, H: 512}\ninputs: {x: 'f32[%s]'}\nops:\n  - y = exp(x)\n"
    inner, leading = (
        explained(read_text(f"{text % shape}  - z = sum(x, dims=[{axis}])\noutputs: [y, z]\n"))
        for shape, axis in (("B, H", 0), ("H, B", 1))
    )
    (fixed,) = [f for s in inner.record.segments for f in s.specialised if f.dim == "H"]
    assert fixed.way_out.startswith("dynamic where it is the leading dim of every tensor")
    assert "H" not in {f.dim for s in leading.record.segments for f in s.specialised}


@pytest.mark.parametrize(("arch", "times"), [("sm_90a", 0), ("sm_80", 1)])
def test_coefficients_of_another_gpu_are_reported_once(
    arch: str, times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(ROOT / "examples" / "softmax.yaml")
    assert run_main(["explain", path, "--target", arch]) == 0
    told = capsys.readouterr().out
    text = " ".join(told.split())
    assert text.count("its coefficients were fitted on another GPU, sm_90a: fractions") == times
    assert text.count("latencies are not scaled") == times
    assert run_main(["explain", path, "--target", arch, "--json"]) == 0
    assert '"cost_of": "sm_90a"' in capsys.readouterr().out
