"""Targets: limits from the CUDA programming guide, rates measured or from data sheets."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.diagnostics import FusecError


@dataclass(frozen=True)
class Target:
    """A GPU.

    arch: as NVRTC takes it. bandwidth: bytes per second that a kernel reaches. flops: fp32
    operations per second, half_flops: fp16/bf16 tensor-core operations per second. launch: seconds
    per kernel launch. registers: 32-bit registers per SM; shared: bytes of shared memory per block;
    l2: bytes.
    """

    arch: str
    device: str
    sms: int
    bandwidth: float
    flops: float
    half_flops: float
    l2: int
    shared: int
    threads: int
    registers: int = 65536
    launch: float = 2.5e-6

    @property
    def capability(self) -> int:
        """Return the compute capability as a number, 90 for sm_90a."""
        return int(self.arch.removeprefix("sm_").rstrip("abf"))

    @property
    def has_bulk_copy(self) -> bool:
        """Return whether bulk copies (TMA) and their reductions exist (sm_90 and later)."""
        return self.capability >= 90

    @property
    def has_wgmma(self) -> bool:
        """Return whether warpgroup matrix instructions exist (sm_90a alone)."""
        return self.arch == "sm_90a"


_TARGETS = (
    # bandwidth: 0.9 of the data sheet, H200: a measured copy of 1 GiB
    Target("sm_80", "A100", 108, 1.8e12, 19.5e12, 312e12, 40 << 20, 163 << 10, 2048),
    Target("sm_89", "L40S", 142, 0.78e12, 91e12, 362e12, 96 << 20, 99 << 10, 1536),
    Target("sm_90", "H100", 132, 3.0e12, 67e12, 990e12, 50 << 20, 227 << 10, 2048),
    Target("sm_90a", "H200", 132, 4.25e12, 67e12, 790e12, 60 << 20, 227 << 10, 2048),
    Target("sm_100", "B200", 148, 7.0e12, 75e12, 2250e12, 126 << 20, 227 << 10, 2048),
    Target("sm_120", "RTX 5090", 170, 1.6e12, 105e12, 210e12, 96 << 20, 99 << 10, 1536),
)
TARGETS = {t.arch: t for t in _TARGETS}


def find(arch: str) -> Target:
    """Return the target called `arch`; FusecError lists the known ones."""
    if arch not in TARGETS:
        raise FusecError(f"unknown target `{arch}`", help="one of " + ", ".join(TARGETS))
    return TARGETS[arch]
