"""Schedules that were measured: files, merging, and which one a segment takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from cli_tools import fusec
from paths import ROOT

from fusec import driver
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.grid_methods import METHODS
from fusec.schedule.segments import plan_segment
from fusec.schedule.summation import digest_at
from fusec.segment.segmented import Segment
from fusec.target import TARGETS, find
from fusec.tuned import Entry, key_of
from fusec.tuned.key import distance
from fusec.tuned.store import merged, shipped_file, store_of, text_of, write
from fusec.tuned.templates import digests
from fusec.user_files import user_file

Capture = pytest.CaptureFixture[str]
OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True)
ROWS = """fusion: NAME
dims: {B: BATCH, H: WIDTH}
inputs: {x: "bf16[B, H]", w: "bf16[H]"}
ops:
  - xf = cast(x, f32)
  - s = sum(mul(xf, w), dims=[1], keepdim=true)
  - y = cast(div(xf, s), bf16)
outputs: [y]
"""
WIDE = {"threads_x": 256, "threads_y": 1, "storage": "registers"}


def rows(batch: int = 4096, width: int = 4096, name: str = "rows", text: str = ROWS) -> Fusion:
    """Return a fusion whose only segment is `inner_persistent`."""
    for word, value in (("NAME", name), ("BATCH", batch), ("WIDTH", width)):
        text = text.replace(word, str(value))
    return read_text(text, f"{name}.yaml")


def segment_of(fusion: Fusion, options: CompileOptions = OPTIONS) -> Segment:
    (segment,) = driver.Compilation(fusion, options).segmented.segments
    return segment


def entry_of(fusion: Fusion, **changed: Any) -> Entry:
    """Return an entry for a fusion's only segment."""
    key = key_of(segment_of(fusion).fusion)
    entry = Entry(
        key.structure, key.sizes, "inner_persistent", "rows y", dict(WIDE), 20.0, 25.0, 21.0, 18.5,
        16, 0.5, digests(["inner_persistent"]), "NVIDIA H200", "CUDA 13.0", "2026-11-23",
    )  # fmt: skip
    return replace(entry, **changed)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return what writes entries to the user's file."""
    monkeypatch.setenv("FUSEC_TUNED", str(tmp_path / "tuned"))

    def written(*entries: Entry) -> Path:
        write(user_file("sm_90a"), entries)
        return user_file("sm_90a")

    return written


Own = Callable[..., Path]


def said(capsys: Capture, *arguments: object) -> str:
    """Return what a command that succeeds prints."""
    done = fusec(capsys, *arguments)
    assert done.code == 0, done.err
    return done.out


# -- what a segment is


def test_names_sizes_and_numbers_do_not_count() -> None:
    key = key_of(segment_of(rows()).fusion)
    other = rows(512, 1024, text=re.sub(r"\bw\b", "weight", ROWS).replace("xf", "wide"))
    assert key_of(segment_of(other).fusion).structure == key.structure
    assert key.sizes == "4096x4096 4096 -> 4096x4096"
    literal = ROWS.replace('"bf16[B, H]"', '"bf16[4096, 4096]"').replace(
        '"bf16[H]"', '"bf16[4096]"'
    )
    assert (
        key_of(segment_of(rows(text=literal.replace("dims: {B: BATCH, H: WIDTH}\n", ""))).fusion)
        == key
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bf16[B, H]", "f16[B, H]"),
        ("div(xf, s)", "mul(xf, s)"),
        ("bf16[H]", "bf16[B, H]"),
        ("outputs: [y]", "outputs: [y, s]"),
        ('w: "bf16[H]"', 'w: "bf16[1]"'),
    ],
)
def test_what_is_computed_counts(old: str, new: str) -> None:
    assert old in ROWS
    changed = key_of(segment_of(rows(text=ROWS.replace(old, new))).fusion)
    assert changed.structure != key_of(segment_of(rows()).fusion).structure


def test_layouts_count() -> None:
    text = """fusion: NAME
dims: {B: BATCH, H: WIDTH}
inputs: {x: {type: "f32[B, H]", strides: STRIDES}, w: "f32[H]"}
ops:
  - y = add(x, w)
outputs: [y]
"""
    layouts = ("[H, 1]", "[1, B]", "[2 * H, 1]", "[2 * H, 2]", "[0, 1]")
    found = {key_of(rows(text=text.replace("STRIDES", s))).structure for s in layouts}
    assert len(found) == len(layouts)


def test_distances_are_doublings_of_extents() -> None:
    assert distance("64x32 32 -> 64x32", "64x32 32 -> 64x32") == 0
    assert distance("64x32 32 -> 64x32", "128x8 8 -> 128x8") == 3
    assert distance("64x64 -> scalar", "0x64 -> scalar") == 6


# -- files


def test_entries_come_back_as_they_were_written(tmp_path: Path) -> None:
    parameters = {"way": 'a "b" \\', "on": True, "count": -3}
    entries = [entry_of(rows(), of="é 'quoted'"), entry_of(rows(8), parameters=parameters)]
    path = tmp_path / "deep" / "sm_90a.toml"
    write(path, entries)
    assert store_of(path).entries() == entries
    assert text_of(store_of(path).entries()) == path.read_text()
    assert [p.name for p in path.parent.iterdir()] == ["sm_90a.toml"]


def test_merging_keeps_the_faster_and_sorts() -> None:
    slow, fast = entry_of(rows(), us=30.0), entry_of(rows(), us=20.0)
    other, stale = entry_of(rows(8)), entry_of(rows(), us=1.0, templates={"inner_persistent": "x"})
    kept = merged([slow, other, stale, fast])
    assert kept == sorted([other, fast], key=lambda e: e.place)
    assert kept == merged([fast, stale, slow, other]) == merged(kept)
    assert merged([stale]) == [stale]


DAMAGE = {
    "a word": (r"(?m)^us = .*$", "us = fast", 7, "us"),
    "no number": (r"(?m)^us = .*$", "us = inf", 7, "`us` is no finite number"),
    "a text": (r"(?m)^us = .*$", 'us = "20"', 7, "`us` is no finite number"),
    "too few": (r"(?m)^records = .*$", "records = 0", 11, "`records` is no number of records"),
    "no field": (r"(?m)^device = .*\n", "", 1, "the entry has no `device`"),
    "another field": (r"(?m)^driver", "diver", 15, "unknown field `diver`"),
    "sizes": (r"(?m)^sizes = .*$", 'sizes = "big"', 3, "`sizes` are extents"),
    "a list": (r"(?m)^parameters = .*$", "parameters = [1]", 6, "`parameters` is no table"),
    "a nested table": (r"storage = \"registers\"", "storage = {}", 6, "`parameters` is no table"),
    "cut": (r"(?s)\ndate.*", "\ndate = \"20", 16, "tuned schedules"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_entry_is_told_by_its_line(name: str, own: Own, capsys: Capture) -> None:
    pattern, new, line, said = DAMAGE[name]
    path = own(entry_of(rows(8)), entry_of(rows()))
    first, block = path.read_text().split("[[entry]]")[1:]
    damaged, count = re.subn(pattern, lambda _: new, f"[[entry]]{block}")
    assert count == 1
    head = path.read_text().split("[[entry]]")[0]
    path.write_text(f"{head}[[entry]]{first}{damaged}")
    begins = f"{head}[[entry]]{first}".count("\n")
    place = f"{path}:{begins + line}:"
    with pytest.raises(FusecError) as caught:
        store_of(path).entries()
    assert said in caught.value.render()
    assert place in caught.value.render()
    with pytest.raises(FusecError, match="tuned schedules"):
        segment_of(rows())


def test_the_page_has_every_field_and_an_entry_that_can_be_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tuning.md").read_text()
    rows_ = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE)
    assert [n for row in rows_ for n in re.findall(r"`(\w+)`", row)] == [
        f.name for f in fields(Entry)
    ]
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "page.toml").write_text(block)
    (entry,) = store_of(tmp_path / "page.toml").entries()
    assert block == entry.text()


def test_text_before_the_first_entry_is_refused(own: Own) -> None:
    path = own(entry_of(rows()))
    path.write_text("us = 3\n" + path.read_text())
    with pytest.raises(FusecError, match="a file must begin with") as caught:
        segment_of(rows())
    assert f"{path}:1:" in caught.value.render()


def test_a_file_has_the_version_of_its_format(own: Own) -> None:
    path = own(entry_of(rows()))
    text = path.read_text()
    assert "\nversion = 2\n" in text
    assert segment_of(rows()).tuned is not None
    for earlier in ("\nversion = 1\n", "\n"):  # the first files had no version
        path.write_text(text.replace("\nversion = 2\n", earlier))
        assert segment_of(rows()).tuned is not None
    path.write_text(text.replace("\nversion = 2\n", "\nversion = 3\n"))
    with pytest.raises(FusecError, match="version 3 of the format; this fusec reads up to 2"):
        segment_of(rows())


def test_an_entry_whose_kernels_added_in_another_order_is_not_used(own: Own) -> None:
    own(entry_of(rows(), summation="0123456789ab"))
    assert segment_of(rows()).tuned is None
    program = driver.Compilation(rows(), replace(OPTIONS, untuned=True))
    settings = "".join(f"{n}: {v}, " for n, v in WIDE.items())
    same = read_text(
        f"{ROWS}schedules:\n  y: {{{settings[:-2]}}}\n".replace("NAME", "rows")
        .replace("BATCH", "4096")
        .replace("WIDTH", "4096")
    )
    planned = driver.Compilation(same, OPTIONS)
    digest = digest_at(planned.local, planned.posts.orders, planned.local.hints)
    own(entry_of(rows(), summation=digest))
    assert segment_of(rows()).tuned is not None
    assert len(program.posts.summation) == 1


@pytest.mark.parametrize("arch", TARGETS)
def test_shipped_files_are_whole_sorted_and_of_these_templates(arch: str) -> None:
    path = shipped_file(arch)
    entries = store_of(path).entries()
    assert entries == merged(entries)
    if entries:
        assert path.read_text() == text_of(entries)
        assert [e.of for e in entries if not e.is_current] == []


# -- which one a segment takes


def settings(segment: Segment) -> dict[str, Any]:
    """Return the free fields with which a segment is planned."""
    plan: Any = plan_segment(segment, find("sm_90a"))
    return plan.parameters.settings


def test_the_sizes_that_were_measured(own: Own) -> None:
    assert segment_of(rows()).tuned is None
    path = own(entry_of(rows()))
    found = segment_of(rows(name="other"))
    assert found.tuned is not None
    assert found.tuned.exact
    assert found.tuned.source == str(path)
    assert WIDE.items() <= settings(found).items()
    assert not WIDE.items() <= settings(segment_of(rows(), replace(OPTIONS, untuned=True))).items()


def test_the_user_counts_more(own: Own) -> None:
    own(entry_of(rows()))
    text = ROWS + "schedules: {y: {threads_x: 512}}\n"
    segment = segment_of(rows(text=text))
    assert segment.tuned is None
    assert settings(segment)["threads_x"] == 512


COLUMNS = """fusion: NAME
inputs: {x: "f32[BATCH, WIDTH]"}
ops:
  - y = sum(x, dims=[0])
outputs: [y]
"""


@pytest.mark.parametrize(("method", "taken"), [("serial_tma", True), ("parallel", False)])
def test_bits_that_vary_are_not_measured_into_a_default(method: str, taken: bool, own: Own) -> None:
    fusion = rows(16384, 512, text=COLUMNS)
    parameters = {"splits": 8, "grid_reduce": method}
    templates = digests(["reduction_outer"])
    own(entry_of(fusion, scheduler="reduction", parameters=parameters, templates=templates))
    assert (segment_of(fusion).tuned is not None) == taken


@pytest.mark.parametrize("arch", TARGETS)
def test_shipped_schedules_give_the_same_bits_in_every_run(arch: str) -> None:
    varying = {(m.family, m.name) for m in METHODS if m.on_request}
    for entry in store_of(shipped_file(arch)).entries():
        chosen = {(entry.scheduler, value) for value in entry.parameters.values()}
        assert not chosen & varying, entry.of


def test_the_nearest_sizes_where_they_are_legal(own: Own) -> None:
    near = entry_of(rows(2048), parameters={**WIDE, "threads_x": 512})
    far = entry_of(rows(1024))
    own(near, far)
    found = segment_of(rows(3000)).tuned
    assert found is not None
    assert not found.exact
    assert found.entry == near
    # No row of 64 has 512 threads with vectors; the record of 1024 rows is legal, and further.
    illegal = replace(near, parameters={**WIDE, "vector_width": 3})
    own(illegal, far)
    found = segment_of(rows(3000)).tuned
    assert found is not None
    assert found.entry == far
    own(illegal)
    assert segment_of(rows(3000)).tuned is None


def test_sizes_that_are_far_say_nothing(own: Own) -> None:
    own(entry_of(rows(4096)))
    assert segment_of(rows(256)).tuned is not None
    assert segment_of(rows(128)).tuned is None


def test_a_record_that_is_dear_at_other_sizes_is_left(own: Own) -> None:
    dear = {"threads_x": 32, "threads_y": 1, "storage": "none"}
    own(entry_of(rows(4096), parameters=dear))
    exact = segment_of(rows(4096))
    assert exact.tuned is not None
    assert segment_of(rows(2048)).tuned is None


@pytest.mark.parametrize(
    "changed",
    [
        {"templates": {"inner_persistent": "0" * 12}},
        {"templates": {"no_such_template": "0" * 12}},
        {"parameters": {"threads": 256}},
        {"parameters": {"threads_x": "many"}},
        {"parameters": {"threads_x": 257}},
        {"parameters": {"keep_values": 1}},
        {"scheduler": "pointwise"},
        {"structure": "0" * 16},
    ],
)
def test_what_does_not_fit_is_not_taken(changed: dict[str, Any], own: Own) -> None:
    own(entry_of(rows(), **changed))
    assert segment_of(rows()).tuned is None


def test_the_users_file_counts_before_the_one_shipped(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "shipped"
    monkeypatch.setattr("fusec.tuned.store.FOLDER", shipped)
    write(shipped / "sm_90a.toml", [entry_of(rows(), us=1.0), entry_of(rows(2048))])
    found = segment_of(rows()).tuned
    assert found is not None
    assert found.source == "fusec"
    own(entry_of(rows(), us=2.0))
    found = segment_of(rows()).tuned
    assert found is not None
    assert found.entry.us == 2.0
    monkeypatch.setenv("FUSEC_TUNED", "0")
    assert segment_of(rows()).tuned is None


# -- what is said of it, and what is kept


def test_explain_and_dump_say_tuned_or_priced(own: Own, capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "rows.yaml"
    file.write_text(ROWS.replace("NAME", "rows").replace("BATCH", "4096").replace("WIDTH", "4096"))
    assert "schedule      selected by the cost model" in said(capsys, "explain", file)
    assert "s0: inner_persistent, selected by the cost model" in said(
        capsys, "dump", file, "--scheduler-params"
    )
    path = own(entry_of(rows()))
    told = "schedule      tuned: 20 us measured on NVIDIA H200, 2026-11-23"
    assert told in said(capsys, "explain", file)
    dumped = said(capsys, "dump", file, "--scheduler-params")
    assert f"s0: inner_persistent, tuned (from {path})" in dumped
    assert "threads_x: 256" in dumped
    assert "schedule      selected by the cost model" in said(capsys, "explain", file, "--untuned")
    (facts,) = json.loads(said(capsys, "explain", file, "--json"))["segments"]
    assert facts["chosen"] == "tuned"
    assert facts["tuned"]["exact"]
    nearby = said(capsys, "explain", file, "--set", "B=2048")
    assert "measured at 4096x4096 4096 -> 4096x4096" in nearby


@pytest.mark.nightly
def test_the_schedule_space_marks_what_is_measured(
    own: Own, capsys: Capture, tmp_path: Path
) -> None:
    file = tmp_path / "rows.yaml"
    file.write_text(ROWS.replace("NAME", "rows").replace("BATCH", "4096").replace("WIDTH", "4096"))
    own(entry_of(rows()))
    assert re.search(r"\n\* .* 256 +1 ", said(capsys, "dump", file, "--schedule-space"))


def test_a_compiled_folder_brings_its_schedules(
    own: Own, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    file, folder = tmp_path / "rows.yaml", tmp_path / "rows.fusec"
    file.write_text(ROWS.replace("NAME", "rows").replace("BATCH", "64").replace("WIDTH", "4096"))
    own(entry_of(rows(64)), entry_of(rows(8)))
    assert fusec(capsys, "compile", file, "-o", folder).code == 0
    kept = store_of(folder / "tuned" / "sm_90a.toml").entries()
    assert kept == [entry_of(rows(64))]
    monkeypatch.setenv("FUSEC_TUNED", "0")
    assert fusec(capsys, "run", folder).code == 0
    (folder / "tuned" / "sm_90a.toml").unlink()
    fusec(capsys, "run", folder).says(2, "tuned/sm_90a.toml` is missing")


def test_golden_files_are_priced(own: Own, capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    file = tmp_path / "rows.yaml"
    file.write_text(ROWS.replace("NAME", "rows").replace("BATCH", "64").replace("WIDTH", "4096"))
    assert fusec(capsys, "golden", file, "--update").code == 0
    own(entry_of(rows(64)))
    assert "as in" in said(capsys, "golden", file)


def test_explain_names_the_sums_whose_last_bits_change(
    own: Own, capsys: Capture, tmp_path: Path
) -> None:
    file = tmp_path / "rows.yaml"
    file.write_text(ROWS.replace("NAME", "rows").replace("BATCH", "4096").replace("WIDTH", "4096"))
    untuned = settings(segment_of(rows()))
    told = "sum order the measured schedule changes the last bits of `s_reduced`;"
    own(entry_of(rows(), parameters={**untuned, "threads_x": untuned["threads_x"] // 2}))
    for size in ("4096", "2048"):  # those that were measured, and others
        assert told in on_one_line(said(capsys, "explain", file, "--set", f"B={size}"))
    (facts,) = json.loads(said(capsys, "explain", file, "--json"))["segments"]
    assert facts["tuned"]["reordered"] == ["s_reduced"]
    assert told not in on_one_line(said(capsys, "explain", file, "--untuned"))
    own(entry_of(rows(), parameters=untuned))
    same = said(capsys, "explain", file)
    assert "schedule      tuned" in same
    assert told not in on_one_line(same)


def on_one_line(text: str) -> str:
    return " ".join(text.split())
