"""Instruction counts against machine code: kernels of examples, built for sm_90a, by class."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache

import pytest
from paths import ROOT

from fusec import driver
from fusec.codegen.counted import counts_of
from fusec.diagnostics import EnvironmentProblem
from fusec.kernel.counting.level_counts import KernelCounts
from fusec.options import CompileOptions
from fusec.run.binary.headers import headers_for
from fusec.run.binary.nvrtc import compile_cuda
from fusec.run.binary.sass import find_tool, sass

OPCODE = re.compile(r"^\s+/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
WIDTH = re.compile(r"\.[US]?(8|16|64|128)\b")
MEMORY = {
    "LDG": "load_global", "STG": "store_global", "LDS": "shared", "STS": "shared",
    "LDSM": "shared", "STSM": "shared",
}  # fmt: skip
CLASSES: Mapping[str, frozenset[str]] = {
    name: frozenset(codes.split())
    for name, codes in {
        "copy": "LDGSTS UTMALDG UBLKCP",
        "atomic": "ATOM ATOMG ATOMS RED REDG",
        "float": "FADD FMUL FFMA FMNMX FSEL FSETP FSET FCHK",
        "double": "DADD DMUL DFMA DSETP",
        "special": "MUFU",
        "shuffle": "SHFL",
        "barrier": "BAR",
        "tensor": "HMMA HGMMA QGMMA IMMA",
        "convert": "F2F F2FP I2F F2I I2FP PRMT I2I",
    }.items()
}
"""Opcodes by class; bf16 is widened by PRMT, or by integer instructions."""
FACTORS = {
    "load_global": 1.3, "store_global": 1.05, "shared": 1.5, "float": 1.6, "special": 1.5,
    "shuffle": 1.05, "barrier": 1.3, "tensor": 1.05, "convert": 2.0,
}  # fmt: skip
"""By which counts and machine code may differ. Integers are not held: what templates say by hand
(the block's place, bounds) is not counted, and is most of them."""
FEW = 5
"""Instructions by which they may differ in any case: loads of a row's own values, a division."""
KERNELS = {
    "layernorm.yaml": (),
    "gelu_bias.yaml": (),
    "transpose.yaml": (),
    "rope.yaml": (),
    "softmax.yaml": (),
    "log_softmax.yaml": (),
    "rmsnorm_residual.yaml": (),
    "quantize_fp8_rows.yaml": (),
    "attention_softmax.yaml": (),
    "cross_entropy.yaml": (),
    "linear_gelu.yaml": ("barrier", "copy", "load_global", "store_global", "shared"),
    "layernorm_backward.yaml": ("shuffle", "shared"),
    "attention.yaml": ("barrier",),
}
"""Examples, and the classes in which loops that the compiler unrolls, or serves otherwise, differ.

linear_gelu, attention: waits for barriers are loops; the bias is loaded once for two rows; the rows
that a warp stores are a loop. layernorm_backward: partial sums of 8 warps are combined by shuffles.
"""
NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in list(KERNELS)[1:]]


def class_of(opcode: str) -> str:
    """Return the class of an instruction of machine code, accesses of any width in one."""
    base = opcode.partition(".")[0]
    if base in MEMORY:
        return MEMORY[base]
    return next((name for name, codes in CLASSES.items() if base in codes), "integer")


@cache
def opcodes(text: str) -> tuple[str, ...]:
    """Return the opcodes of a kernel as it is built for sm_90a."""
    pytest.importorskip("cuda.bindings.nvrtc")
    try:
        find_tool("nvdisasm")
    except EnvironmentProblem as missing:
        pytest.skip(str(missing))
    built = compile_cuda(text, name="counted.cu", arch="sm_90a", headers=headers_for(text))
    return tuple(OPCODE.findall(sass(built.cubin)))


def of_nodes(counts: KernelCounts) -> Mapping[str, float]:
    """Return the instructions of a kernel as it is counted, by the same classes."""
    found: dict[str, float] = {}
    for name, number in counts.kernel.text().items():
        space = re.match(r"(load_global|store_global|\w+_(shared))_\d+", name)
        own = name if space is None else space[2] or space[1]
        found[own] = found.get(own, 0) + number
    return found


@cache
def kernels(example: str) -> tuple[tuple[str, str, KernelCounts], ...]:
    """Return the name, the text and the counts of each kernel of an example."""
    found: list[tuple[str, str, KernelCounts]] = []
    (program,) = driver.programs(str(ROOT / "examples" / example), CompileOptions())
    for source in (s for each in program.sources for s in each):
        counts = counts_of(source, program.segmented.fusion.hints)
        assert counts is not None
        found.append((source.name, source.text, counts))
    return tuple(found)


@pytest.mark.parametrize("example", [next(iter(KERNELS)), *NIGHTLY])
def test_counts_are_those_of_machine_code(example: str) -> None:
    for name, text, counts in kernels(example):
        assert counts.not_counted == (), name
        built, counted = Counter(map(class_of, opcodes(text))), of_nodes(counts)
        off = {
            kind: (counted.get(kind, 0), built[kind])
            for kind, factor in FACTORS.items()
            if kind not in KERNELS[example]
            and not is_near(counted.get(kind, 0), built[kind], factor)
        }
        assert off == {}, name


def is_near(counted: float, built: float, factor: float) -> bool:
    """Return whether two counts differ by less than a factor, or by a few instructions."""
    most, least = max(counted, built), min(counted, built)
    return most - least <= FEW or most <= factor * least


def test_counts_by_width_are_those_of_machine_code() -> None:
    """Accesses of a layer norm have the widths of its instructions."""
    ((_, text, counts),) = kernels("layernorm.yaml")
    accesses = Counter(
        f"{MEMORY[base]}_{match[1] if (match := WIDTH.search(code)) else 32}"
        for code in opcodes(text)
        if (base := code.partition(".")[0]) in ("LDG", "STG")
    )
    counted = {n: c for n, c in counts.kernel.text().items() if "_global_" in n}
    assert counted == dict(accesses)


def test_a_count_that_is_off_is_seen() -> None:
    assert is_near(100, 120, 1.3)
    assert not is_near(100, 140, 1.3)
    assert not is_near(0, 16, 1.3)
