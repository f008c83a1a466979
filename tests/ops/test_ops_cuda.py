"""Every CUDA expression compiles with NVRTC in each type in which its operation computes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from families import plan_of, text_of

from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.ir.dtype import DType
from fusec.kernel.ctext import compute_type
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.run.binary.headers import device_headers
from fusec.run.binary.nvrtc import compile_ptx

TYPES = (
    dtypes.F32, dtypes.F64, dtypes.I64, dtypes.I32, dtypes.I8, dtypes.U64, dtypes.U8, dtypes.BOOL,
)  # fmt: skip


def expression(op: str, kind: DType) -> str:
    """Return the expression for a compute type, by the order of keys that OpDef documents."""
    cuda = TABLE[op].cuda
    integer = "int" if kind.kind in ("uint", "bool") else ""
    return next(cuda[key] for key in (kind.name, kind.kind, integer, "default") if key in cuda)


def functions() -> Iterator[str]:
    """Yield a device function for every pointwise operation and operand type."""
    for op in TABLE.values():
        if op.family != "pointwise" or op.name == "cast":
            continue
        for dtype in TYPES:
            builder = GraphBuilder()
            operands = [
                builder.input(f"x{k}", dtypes.BOOL if p.name == "condition" else dtype, [4])
                for k, p in enumerate(op.operands)
            ]
            try:
                result = builder.apply(op.name, *operands)
            except FusecError:
                continue
            builder.output(result)
            node = builder.finish().nodes[-1]
            kinds = node.compute_dtypes
            text = expression(op.name, kinds[-1])
            names = {p.name: f"x{k}" for k, p in enumerate(op.operands)}
            parameters = ", ".join(f"{compute_type(d)} x{k}" for k, d in enumerate(kinds))
            target = compute_type(node.output.dtype)
            yield (
                f"__global__ void {op.name}_{dtype}({target}* out, {parameters}) {{"
                f" *out = static_cast<{target}>({text.format(**names)}); }}"
            )


def test_expressions_compile() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    bodies = list(functions())
    assert len(bodies) > 400
    source = (
        '#include "fast_math.cuh"\n#include "math.cuh"\n#include "tf32.cuh"\n#include "types.cuh"\n'
    )
    source += "namespace ops {\n" + "\n".join(bodies) + "\n}\n"
    ptx = compile_ptx(source, name="ops.cu", arch="sm_90a", headers=device_headers())
    assert ptx.count(".entry") == len(bodies)


@pytest.mark.parametrize("dtype", [dtypes.I8, dtypes.U8, dtypes.I16, dtypes.U16, dtypes.BOOL])
def test_narrow_results_are_operands_of_their_own_type(dtype: DType) -> None:
    """C makes an `int` of `a | b`: as an operand that is not stored first it is narrow again."""
    pytest.importorskip("cuda.bindings.nvrtc")
    builder = GraphBuilder("narrow")
    x, y = (builder.input(name, dtype, [64]) for name in "xy")
    whole = "logical_not" if dtype is dtypes.BOOL else "sign"
    for op in TABLE.values():
        if op.family != "pointwise" or op.name == "cast":
            continue
        inline = builder.apply("bitwise_or", builder.apply(whole, x), y)
        first = builder.apply("ne", inline, y) if op.operands[0].name == "condition" else inline
        try:
            builder.output(builder.apply(op.name, first, *(y for _ in op.operands[1:])))
        except FusecError:
            continue
    source = text_of(plan_of("pointwise", builder.finish()))
    ptx = compile_ptx(source, name="narrow.cu", arch="sm_90a", headers=device_headers())
    assert ".entry" in ptx


def test_combiners_exist() -> None:
    headers = device_headers()
    text = headers["combine.cuh"] + headers["welford.cuh"]
    for op in TABLE.values():
        if op.family == "reduction":
            assert f"struct {op.cuda['default']} {{" in text, op.name
