"""Turns CUDA text into C++ for the host: shared memory and inline PTX become calls."""

from __future__ import annotations

import re

# What instructions are on the host: functions of tests/device/ptx_on_cpu.h, by the mnemonics.
INSTRUCTIONS = {
    "mov.b32": "join_halves",
    "mov.u32 %%cluster_ctarank": "cluster_rank",
    "mov.u32 %%laneid": "lane_number",
    "cvt.f32.f16": "widen_f16",
    "cvt.rn.f16.f32": "narrow_f16",
    "cvt.rn.bf16.f32": "narrow_bf16",
    "cvt.rn.f16x2.f32": "narrow_two_f16",
    "cvt.rn.bf16x2.f32": "narrow_two_bf16",
    "lop3.b32": "and_or",
    "fma.rn.bf16x2": "multiply_add_two<true>",
    "fma.rn.f16x2": "multiply_add_two<false>",
    "div.full.f32": "divide",
    "ex2.approx.ftz.f32": "power_of_two",
    "rcp.approx.ftz.f32": "inverse",
    "max.NaN.f32": "max_with_nan",
    "min.NaN.f32": "min_with_nan",
    "ld.acquire.gpu.global.u32": "load_acquire",
    "ld.acquire.sys.global.u32": "load_acquire",
    "ld.acquire.sys.global.u64": "load_acquire",
    "ld.global.nc.L1::no_allocate.L2::256B.v4.u32": "load_once",
    "ld.global.nc.L1::no_allocate.L2::256B.v2.u32": "load_once",
    "ld.global.nc.L1::no_allocate.L2::256B.u32": "load_once",
    "st.relaxed.gpu.global.u32": "store_relaxed",
    "st.release.gpu.global.u32": "store_release",
    "st.release.sys.global.u32": "store_release",
    "st.release.sys.global.u64": "store_release",
    "ld.volatile.global.v4.u32": "load_line_of_words",
    "st.volatile.global.v4.u32": "store_line_of_words",
    "atom.add.acq_rel.gpu.global.u32": "add_release",
    "atom.inc.acq_rel.gpu.global.u32": "count_and_wrap",
    "cp.async.cg.shared.global": "copy_16",
    "cp.async.cg.shared.global.L2::128B": "copy_16",
    "cp.async.cg.shared.global.L2::cache_hint.L2::128B": "copy_16",
    "cp.async.ca.shared.global": "copy",
    "cp.async.commit_group": "copy_commit",
    "cp.async.wait_group": "copy_wait",
    "cp.async.wait_all": "copy_wait_all",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16": "load_matrices<false>",
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16": "load_matrices<false>",
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16": "load_matrices<true>",
    "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16": "load_matrices<true>",
    "stmatrix.sync.aligned.m8n8.x4.shared.b16": "store_matrices<false>",
    "stmatrix.sync.aligned.m8n8.x2.shared.b16": "store_matrices<false>",
    "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16": "store_matrices<true>",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": "multiply<true>",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": "multiply<false>",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": "multiply_tf32",
    "cvt.rna.tf32.f32": "round_to_tf32",
    "mbarrier.init.shared::cta.b64": "barrier_init",
    "mbarrier.inval.shared::cta.b64": "barrier_invalidate",
    "mbarrier.arrive.release.cta.shared::cta.b64": "barrier_arrive",
    "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64": "barrier_arrive_expect",
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64": "barrier_expect",
    "mapa.shared::cluster.u32+mbarrier.arrive.shared::cluster.b64": ("barrier_arrive_at"),
    "mbarrier.try_wait.parity.shared::cta.b64": "barrier_try_wait",
    "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64": "barrier_try_wait",
    "fence.mbarrier_init.release.cluster": "fence_barrier_init",
    "fence.proxy.async.shared::cta": "fence_proxy_shared",
    "fence.proxy.async": "fence_proxy",
    "fence.proxy.async.global": "fence_proxy_global",
    "cp.async.bulk.commit_group": "bulk_commit",
    "cp.async.bulk.wait_group": "bulk_wait",
    "cp.async.bulk.wait_group.read": "bulk_wait_read",
    "elect.sync": "elect",
    "prefetch.tensormap": "prefetch",
    "prefetch.global.L2": "prefetch_l2",
    "createpolicy.fractional.L2::evict_first.b64": "no_policy",
    "createpolicy.fractional.L2::evict_last.b64": "no_policy",
    "cp.async.bulk.global.shared::cta.bulk_group": "bulk_store",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.": "bulk_reduce",
    "bar.sync": "wait_for_threads",
    "bar.arrive": "arrive_for_threads",
    "griddepcontrol.launch_dependents": "let_next_kernel_start",
    "griddepcontrol.wait": "wait_for_kernels",
    "barrier.cluster.arrive.release.aligned+barrier.cluster.wait.acquire.aligned": (
        "wait_for_cluster"
    ),
    "mapa.shared::cluster.u32": "cluster_address",
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32": "store_remote",
    "ld.shared::cluster.u32": "load_remote",
    "ld.shared::cluster.v4.f32": "load_remote",
    "wgmma.fence.sync.aligned": "wgmma_fence",
    "wgmma.commit_group.sync.aligned": "wgmma_commit",
    "wgmma.wait_group.sync.aligned": "wgmma_wait",
    "setmaxnreg.dec.sync.aligned.u32": "set_registers",
    "setmaxnreg.inc.sync.aligned.u32": "set_registers",
    **{
        f"cp.async.bulk{form}.mbarrier::complete_tx::bytes{hint}": name
        for form, name in {
            ".shared::cluster.global": "bulk_load",
            ".tensor.2d.shared::cluster.global.tile": "tensor_load_2d",
            ".tensor.3d.shared::cluster.global.tile": "tensor_load_3d",
            ".tensor.4d.shared::cluster.global.tile": "tensor_load_4d",
        }.items()
        for hint in ("", ".L2::cache_hint")
    },
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    ".multicast::cluster": "tensor_load_2d_multicast",
    "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    ".multicast::cluster": "tensor_load_3d_multicast",
    "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    ".multicast::cluster.L2::cache_hint": "tensor_load_3d_multicast",
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group": "tensor_store_2d",
    "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group": "tensor_store_3d",
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group": "tensor_reduce_2d",
    "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group": "tensor_reduce_3d",
}
# Instructions that only move a predicate.
PREDICATES = (".reg", "selp.", "setp.")
ASM = re.compile(r"\basm(?: volatile)?\(")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
DYNAMIC = re.compile(r"extern __shared__ __align__\((\d+)\) ([\w ]+?) (\w+)\[\];")
SHARED = re.compile(r"__shared__ (?:__align__\((\d+)\) )?([^;]+?) (\w+)((?:\[[^;]*\])?);")
WGMMA = re.compile(r"#define FUSEC_WGMMA\(N, TYPE,.*?\n(?=#define)", re.DOTALL)
WGMMA_CALL = (
    "#define FUSEC_WGMMA(N, TYPE, ...) "
    "cpu::wgmma(d, N, TYPE, a, b, scale_d, kTransposeA, kTransposeB)\n"
)
WGMMA_FP8 = re.compile(r"#define FUSEC_WGMMA_FP8\(N, A_AT,.*?\n(?=#define)", re.DOTALL)
WGMMA_FP8_CALL = (
    "#define FUSEC_WGMMA_FP8(N, ...) cpu::wgmma_fp8(d, N, Fp8Types<A, B>::kText, a, b, scale_d)\n"
)
WGMMA_TF32 = re.compile(r"#define FUSEC_WGMMA_TF32\(N, A_AT,.*?\n(?=#define)", re.DOTALL)
WGMMA_TF32_CALL = "#define FUSEC_WGMMA_TF32(N, ...) cpu::wgmma_tf32(d, N, a, b, scale_d)\n"
WGMMA_REGISTERS = re.compile(
    r"#define FUSEC_WGMMA_FROM_REGISTERS\(N, TYPE,.*?\n(?=#define)", re.DOTALL
)
WGMMA_REGISTERS_CALL = (
    "#define FUSEC_WGMMA_FROM_REGISTERS(N, TYPE, ...) "
    "cpu::wgmma_registers(d, N, TYPE, a, b, true, 1)\n"
)
WGMMA_CONVERTED = re.compile(r"#define FUSEC_WGMMA_CONVERTED\(N, TYPE,.*?\n(?=#define)", re.DOTALL)
WGMMA_CONVERTED_CALL = (
    "#define FUSEC_WGMMA_CONVERTED(N, TYPE, ...) "
    "cpu::wgmma_registers(d, N, TYPE, a, b, false, scale_d)\n"
)


def on_host(text: str) -> str:
    """Return CUDA text with inline PTX and declarations of shared memory replaced."""
    text = WGMMA.sub(WGMMA_CALL, text)
    text = WGMMA_FP8.sub(WGMMA_FP8_CALL, text)
    text = WGMMA_TF32.sub(WGMMA_TF32_CALL, text)
    text = WGMMA_CONVERTED.sub(WGMMA_CONVERTED_CALL, text)
    text = WGMMA_REGISTERS.sub(WGMMA_REGISTERS_CALL, text)
    text = text.replace("{ return data[i]; }", "{ return data[cpu::within(i, N)]; }")
    text = DYNAMIC.sub(r"\2* const \3 = reinterpret_cast<\2*>(cpu::dynamic_shared());", text)
    text = SHARED.sub(_variable, text)
    parts: list[str] = []
    at = 0
    for found in ASM.finditer(text):
        end = _closing(text, found.end())
        inside = text[found.end() : end]
        # Lines keep their numbers; in a macro they end in a backslash.
        lines = ("\\\n" if "\\\n" in inside else "\n") * inside.count("\n")
        parts += [text[at : found.start()], _call(inside.replace("\\\n", "\n")), lines]
        at = end + 1
    return "".join([*parts, text[at:]])


def _variable(found: re.Match[str]) -> str:
    alignment, kind, name, extents = found.groups()
    return (
        f"typedef {kind} {name}_type{extents}; "
        f"static cpu::Place {name}_place{{sizeof({name}_type), {alignment or 16}}}; "
        f"auto& {name} = *reinterpret_cast<{name}_type*>(cpu::shared_variable({name}_place));"
    )


def _closing(text: str, at: int) -> int:
    """Return where the parenthesis closes that is open at `at`."""
    depth, quoted = 1, False
    for place in range(at, len(text)):
        letter = text[place]
        if letter == '"' and text[place - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if depth == 0:
                return place
    raise AssertionError("an asm statement that does not end")


def _split(text: str, at: str) -> list[str]:
    """Return the parts of `text` between separators outside of strings and parentheses."""
    parts, depth, quoted = [""], 0, False
    for letter in text:
        if letter == '"':
            quoted = not quoted
        depth += 0 if quoted else {"(": 1, ")": -1}.get(letter, 0)
        if letter == at and not quoted and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _call(inside: str) -> str:
    """Return what stands for an asm statement, from what its parentheses hold."""
    text, *sections = _split(inside, ":")
    operands = [
        operand[operand.index("(") + 1 : -1]
        for section in sections[:2]
        for operand in _split(section, ",")
        if operand
    ]
    # A macro's parameter between the strings is what instructions of one form differ in.
    parameter = STRING.sub("", text).split()
    instruction = "".join(STRING.findall(text)).replace("\\n", "\n")
    names = [line for line in re.split(r"[;\n{}]", instruction) if _is_instruction(line)]
    key = "+".join(line.split()[0] for line in names)
    if "%%" in instruction:
        key += " " + instruction[instruction.index("%%") :].rstrip(";")
    if not key:
        return "(void)0"
    name = INSTRUCTIONS.get(key)
    if name is None:
        return f'cpu::fail("no stand-in for {key}")'
    return f"cpu::{name}({', '.join([*parameter, *operands])})"


def _is_instruction(line: str) -> bool:
    line = line.strip()
    return bool(re.match(r"[a-z]+[.\w:]*( |$)", line)) and not line.startswith(PREDICATES)
