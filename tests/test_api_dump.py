"""`fusec.dump`: what the command line prints, returned; and groups of a predicate, run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_tools import fusec as command
from dump_parser import check, parse
from paths import ROOT
from test_segment_levels import TEXT, without_sine

import fusec
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.parse import read_text

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("kind", ["segmented-fusion", "preseg", "host-ir", "host-passes"])
def test_dumps_are_those_of_the_command_line(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = EXAMPLES / "cross_entropy.yaml"
    without = ["merge_casts", "order_segments"]
    flags = [f"--without={name}" for name in without]
    done = command(capsys, "dump", path, f"--{kind}", *flags)
    assert fusec.dump(str(path), kind, without=without) == done.out


def test_groups_of_a_predicate_are_dumped_compiled_and_run() -> None:
    """As seed 002's custom_should_merge_groups has them: of kind none, kernels inside."""
    asked: list[tuple[str, ...]] = []

    def noting(first: Fusion, second: Fusion) -> bool:
        asked.append(tuple(n.op.name for f in (first, second) for n in f.nodes))
        return without_sine(first, second)

    text = fusec.dump(TEXT, "groups", style="head", should_merge=noting)
    check(parse(text))
    assert "groups: \n  none{0, 1, 2}\n  none{3}\n  none{4}\n" in text
    assert asked
    segments = fusec.segmentation(read_text(TEXT), should_merge=without_sine).segments
    assert len(segments) == 3
    program = fusec.compile(TEXT, should_merge=without_sine)
    x, z = np.random.default_rng(0).random((2, 64, 512), np.float32)
    found = np.asarray(program(x, z))
    np.testing.assert_allclose(found, np.cos(np.sin(np.exp(x + z).sum(1))), rtol=1e-4, atol=1e-4)


def test_explicit_boundaries_make_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "levels.yaml"
    path.write_text(TEXT.lstrip() + "boundaries: explicit\n", encoding="utf-8")
    done = command(capsys, "dump", path, "--groups")
    assert (done.code, fusec.dump(str(path), "groups")) == (0, done.out)
    assert "g{0, 1, 2, 3, 4}" in done.out


def test_wrong_kinds_are_named() -> None:
    with pytest.raises(FusecError, match="has no kind `host_ir`"):
        fusec.dump(TEXT, "host_ir")
    with pytest.raises(FusecError, match="has no style `2025`"):
        fusec.dump(TEXT, style="2025")
    with pytest.raises(FusecError, match="`levels` has no groups"):
        fusec.dump(TEXT, "groups")
    with pytest.raises(FusecError, match="should_merge raised ValueError: boom"):
        fusec.dump(TEXT, "groups", should_merge=_broken)


def _broken(_first: Fusion, _second: Fusion) -> bool:
    raise ValueError("boom")
