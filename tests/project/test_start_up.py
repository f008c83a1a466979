"""What commands load before they do anything: most of the time of a short one."""

from __future__ import annotations

import pytest
from test_layers import modules_after

COMMANDS = {
    ("--help",): {"yaml", "jinja2"},
    ("check", "examples/layernorm.yaml"): set[str](),
}
NEVER = {
    "asyncio", "concurrent", "cuda", "ml_dtypes", "multiprocessing", "networkx", "numpy", "scipy",
    "socket", "sqlite3", "subprocess",
}  # fmt: skip
"""What neither needs: arithmetic, graphs, other processes and the network."""


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_load_what_they_need(command: tuple[str, ...]) -> None:
    loaded = modules_after(*command)
    assert "click" in loaded
    assert loaded & (NEVER | COMMANDS[command]) == set()
