"""Kernels as FUSEC_DEBUG=1 builds them, on the host: where they differ from others."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_attention_backward_on_cpu import RECOGNISED, SMALL
from test_attention_backward_on_cpu import wrong as wrong_backward
from test_hopper_on_cpu import ORDERS, split_in_three, wrong

from fusec.run.binary.headers import device_headers

DEFINED = "#define FUSEC_DEBUG\n"


def as_debug(text: str) -> str:
    """Return a kernel's text, or a header's, as a debug build has it."""
    return DEFINED + text


@pytest.mark.parametrize("method", ["serial_tma", "serial"])
def test_turns_of_debug_builds_are_right(method: str, tmp_path: Path) -> None:
    assert wrong(*split_in_three(method, cluster_k=1), tmp_path, ORDERS, as_debug) == ""


def test_debug_builds_trap_where_a_turn_does_not_come(tmp_path: Path) -> None:
    """After fewer looks here: the emulator ends a hang before a kernel does."""
    looks = "if (++looks == 1u << 22) __trap();"
    assert looks in device_headers()["grid.cuh"]

    def edit(text: str) -> str:
        return as_debug(text.replace(looks, looks.replace("1u << 22", "1u")))

    assert "a trap" in wrong(*split_in_three("serial_tma", cluster_k=1), tmp_path, ORDERS, edit)


@pytest.mark.nightly
def test_each_lane_hands_back_in_debug_builds(tmp_path: Path) -> None:
    assert wrong_backward(RECOGNISED["window"], tmp_path, SMALL, edit=as_debug) == ""
