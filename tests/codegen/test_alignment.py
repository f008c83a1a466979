"""What a program says of the alignment of its buffers is enough, and no more than is needed."""

from __future__ import annotations

from pathlib import Path

import cuda_on_cpu
import pytest
from emulated import EmulatedDevice

from fusec import driver
from fusec.hostir.program import HostProgram
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.execute import execute
from fusec.run.inputs import choose_sizes, random_inputs

OPTIONS = CompileOptions(targets=("sm_80",))
# By fusion: the alignment of each buffer of the caller's.
FUSIONS = {
    "dims: {B: 3, H: 16}\ninputs: {x: 'bf16[B, H]', w: 'f32[H]', s: 'f32[B]'}\n"
    "ops:\n- xf = cast(x, f32)\n- y = add(mul(xf, w), reshape(s, [B, 1]))\noutputs: [y]\n": {
        "x": 16, "w": 16, "s": 4, "y": 16,
    },
    "dims: {B: 3, H: 6}\ninputs: {x: 'f32[B, H]', k: 'bool[B, H]'}\n"
    "ops:\n- y = where(k, x, 0.0)\n- m = max(x, dims=[1])\noutputs: [y, m]\n": {
        "x": 8, "k": 2, "y": 8, "m": 4,
    },
    "dims: {B: 5, H: 64}\ninputs: {x: 'f32[B, H]', p: 'f32[B, H]'}\n"
    "ops:\n- n = softmax(x, dim=1)\n- q = add(p, n)\noutputs: [q: {alias: p}]\n": {
        "x": 16, "p": 16, "q": 4,
    },
    "dims: {B: 40, H: 11}\ninputs: {x: 'bf16[B, H]'}\nops:\n- y = softmax(cast(x, f32), 1)\n"
    "- s = cast(y, bf16)\noutputs: [s]\n": {"x": 2, "s": 2},
    "dims: {B: 5, H: 7}\ninputs: {z: 'c64[B, H]'}\nops:\n- y = mul(z, z)\noutputs: [y]\n": {
        "z": 8, "y": 8,
    },
    "dims: {B: 40, H: 36}\ninputs: {x: 'f16[B, H]'}\nops:\n- y = permute(neg(x), [1, 0])\n"
    "outputs: [y]\n": {"x": 8, "y": 16},
    # Parts of a loop begin as kernels ask, which a guard checks: so must the first one.
    "dims: {B: 8, H: 36}\ninputs: {x: {type: 'f16[B, H]', stream: {0: 4}}}\nops:\n- y = neg(x)\n"
    "outputs: [y]\n": {"x": 16, "y": 16},
}  # fmt: skip


def fusion_of(text: str) -> Fusion:
    """Return the fusion of a text without a name."""
    return read_text(f"fusion: aligned\n{text}", "aligned.yaml")


@pytest.mark.parametrize("text", FUSIONS, ids=range(len(FUSIONS)))
def test_alignment_of_callers_buffers(text: str) -> None:
    program = driver.plan(fusion_of(text), OPTIONS).host
    told = {b.name: b.alignment for b in program.buffers if b.role in ("input", "output")}
    assert told == FUSIONS[text]


def rounding_down(text: str) -> str:
    """Make vector accesses lose the lower bits of addresses, which should be zero."""
    for pointer, const in (("source", "const "), ("target", "")):
        old = f"reinterpret_cast<{const}W*>({pointer})"
        number = f"reinterpret_cast<unsigned long long>({pointer})"
        text = text.replace(old, f"reinterpret_cast<{const}W*>({number} & ~(sizeof(W) - 1ull))")
    return text


class Askew(EmulatedDevice):
    """Gives a buffer of the caller memory of the alignment that the program asks, and no more."""

    program: HostProgram

    def allocate(self, size: int, what: str) -> int:
        """Return the address of host memory."""
        role, name = what.replace("`", "").split()
        known = self.program.buffer[name].alignment if role in ("input", "output") else 0
        address = super().allocate(size + known, what) + known
        assert not known or address % (2 * known)
        return address

    def free(self, address: int) -> None:
        """Keep the memory."""

    def check_guards(self, what: str) -> None:
        """Leave zones alone: they move with the memory."""


@pytest.mark.parametrize("text", FUSIONS, ids=range(len(FUSIONS)))
def test_kernels_need_no_more(text: str, tmp_path: Path) -> None:
    program = driver.plan(fusion_of(text), OPTIONS)
    functions = {
        source.name: cuda_on_cpu.build(source.kernel, source.text, tmp_path, rounding_down)
        for source in program.kernel_sources
    }
    sizes = choose_sizes(program.original)
    inputs = random_inputs(program.original, sizes)
    device = Askew(functions)
    device.program = program.host
    cubins = dict.fromkeys(functions, b"")
    plain = EmulatedDevice(functions)
    found = execute(device, program.host, cubins, inputs, sizes)
    expected = execute(plain, program.host, cubins, inputs, sizes)
    assert {n: a.tobytes() for n, a in found.items()} == {
        n: a.tobytes() for n, a in expected.items()
    }
