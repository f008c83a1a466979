"""Emits a package as C source: a program per context, in a library for any C compiler."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from fusec.codegen.layout import filled
from fusec.codegen.render import environment
from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import Unsupported
from fusec.driver import Compilation, Package
from fusec.emit.code import field_of
from fusec.emit.conditions import conditions
from fusec.emit.expressions import Sizes
from fusec.emit.local import check_program, local_bounds
from fusec.emit.names import (
    C_TYPES,
    FieldNames,
    about,
    check_agree,
    check_fusion_name,
    literal,
)
from fusec.emit.names import views_of as views_in
from fusec.emit.plan import PlanPrinter
from fusec.emit.scratch import is_given
from fusec.emit.view import (
    Axis,
    BuildPlan,
    BuildView,
    Condition,
    Cubin,
    Field,
    KernelCode,
    PlanView,
    Pointer,
    ProgramView,
    Size,
)
from fusec.hostir.coverage import fixed_size
from fusec.hostir.program import Buffer, HostProgram
from fusec.hostir.program import Scalar as ScalarInput
from fusec.ir.dtype import DType
from fusec.ir.sharding import Mesh
from fusec.kernel.names import Names
from fusec.run.arrays import span
from fusec.run.binary.nvrtc import least_driver
from fusec.run.inputs import choose_sizes
from fusec.target import find


def files_of(view: ProgramView) -> dict[str, bytes]:
    """Return the C files of a package by path."""
    templates = {
        f"{view.name}.h": "program.h",
        f"{view.name}.c": "program.c",
        "example.c": "example.c",
        "CMakeLists.txt": "CMakeLists.txt",
    }
    return {path: rendered(f"c/{template}.j2", view) for path, template in templates.items()}


def rendered(template: str, view: Any) -> bytes:
    """Return a rendered template with long lines broken."""
    text = environment().get_template(template).render(k=view)
    code, mark, tables = text.partition("// clang-format off\n")
    if not template.endswith(".txt.j2"):
        code = re.sub(r"\n{3,}", "\n\n", "\n".join(filled(code.split("\n"))))
    return f"{code}{mark}{tables.rstrip()}\n".encode() if mark else f"{code.rstrip()}\n".encode()


def view_of(package: Package) -> ProgramView:
    """Return the view of a package for the templates; Unsupported for what C cannot launch."""
    fusion = package.program.local
    check_fusion_name(fusion.name)
    programs = [p.host for p in package.programs]
    for program in programs:
        check_program(program, fusion.mesh)
        if any(c.index is None for c in program.checks):
            raise Unsupported(
                f"`{fusion.name}` cannot be emitted as C with --check-bounds: the launcher does "
                "not read back index errors",
            )
    check_agree(programs)
    return _Printer(package).view()


@dataclass
class _Printer:
    """Builds the view of a package."""

    package: Package
    names: FieldNames = field(default_factory=FieldNames)
    texts: dict[str, int] = field(default_factory=dict[str, int])
    pointers: dict[str, int] = field(default_factory=dict[str, int])
    plan_names: Names = field(default_factory=Names)
    helpers: set[str] = field(default_factory=set[str])
    axes: tuple[Axis, ...] = ()

    def view(self) -> ProgramView:
        package = self.package
        fusion = package.program.local
        self.axes = tuple(_axes(fusion.mesh))
        sizes = self._sizes()
        fields = tuple(self._fields({s.symbol for s in sizes}))
        plans = tuple(self._plan(p, sizes, fields) for p in package.programs)
        cubins: dict[bytes, Cubin] = {}
        targets = dict.fromkeys(t for p in package.programs for t in p.targets)
        builds = [self._build(target, plans, cubins) for target in targets]
        builds.sort(key=lambda b: (b.major, b.minor, b.just_one), reverse=True)
        drivers = (least_driver(a.compiler) for a in package.artifacts.values())
        return ProgramView(
            name=fusion.name,
            facts=fusion.dims,
            sizes=sizes,
            fields=fields,
            plans=plans,
            conditions=tuple(literal(t) for t in self.texts),
            pointers=tuple(self.pointers),
            builds=tuple(builds),
            cubins=tuple(cubins.values()),
            helpers=frozenset(self.helpers),
            driver=max(drivers, default=0),
            axes=self.axes,
        )

    def _sizes(self) -> tuple[Size, ...]:
        """Return the dims, strides and integer inputs that something depends on."""
        fusion = self.package.program.local
        chosen = choose_sizes(fusion)
        sizes: list[Size] = []
        for fact in fusion.dims:
            stride = ".stride" in fact.name
            text = f"stride of {fact.name.replace('.stride', ', dim ')}" if stride else "extent"
            if fact.name in {s.name for s in self.package.program.host.scalars}:
                text = "input"
            every = [fixed_size(fact.name, p.host.guards) for p in self.package.programs]
            fixed = {size for size in every if size is not None}
            if None not in every:
                text += f", {' or '.join(map(str, sorted(fixed)))} in these kernels"
            if fact.multiple_of > 1:
                text += f", a multiple of {fact.multiple_of}"
            name = self.names.add(fact.name, "size")
            sizes.append(Size(name, text, chosen[fact.name], fact.name))
        return tuple(sizes)

    def _fields(self, sizes: set[str]) -> Iterator[Field]:
        host = self.package.program.host
        into = {source: output for output, source in host.aliases}
        alignment = {
            b.name: max(p.host.buffer[b.name].alignment for p in self.package.programs)
            for b in host.buffers
            if b.role in ("input", "output")
        }
        generated = {i.value.name: i.generator for i in self.package.program.fusion.inputs}
        for buffer in host.inputs:
            access = about(replace(buffer, alignment=alignment[buffer.name]))
            written = buffer.name in into
            if written:
                access += f"; {into[buffer.name]} is written to it"
            if generated.get(buffer.name):
                access += f"; the {generated[buffer.name]} of random numbers"
            yield self._tensor(
                buffer, "void*" if written else "const void*", access, written=written
            )
        for scalar in host.scalars:
            if scalar.name not in sizes:
                yield self._scalar(scalar)
        views = views_in(host)
        for buffer in (host.buffer[n] for n in host.outputs):
            if is_given(host, buffer.name) and buffer.name not in views:
                access = about(replace(buffer, alignment=alignment[buffer.name]))
                yield self._tensor(buffer, "void*", access, written=True)
            elif buffer.name in views:
                access = f"{about(buffer)}: set by the run, a part of other memory"
                yield self._tensor(buffer, "void*", access, given=False)

    def _tensor(
        self, buffer: Buffer, kind: str, access: str, *, written: bool = False, given: bool = True
    ) -> Field:
        sizes = choose_sizes(self.package.program.local)
        shape = [d.evaluate(sizes) for d in buffer.shape]
        reach = span(shape, [d.evaluate(sizes) for d in buffer.strides]) * buffer.dtype.size
        name = self.names.add(buffer.name, "tensor")
        size = reach if given else None
        return Field(
            name, kind, access, buffer.name, buffer.dtype, size, given=given, written=written
        )

    def _scalar(self, scalar: ScalarInput) -> Field:
        default = "" if scalar.default is None else _number(scalar.default, scalar.dtype)
        access = f"{scalar.dtype}" + (f", by default {scalar.default}" if default else "")
        kind = C_TYPES.get(scalar.dtype.name)
        if kind is None:
            access = f"{access}: its bits"
            kind = "uint16_t" if scalar.dtype.size == 2 else "uint8_t"
        return Field(
            self.names.add(scalar.name, "scalar"), kind, access, scalar.name, scalar.dtype,
            default=default,
        )  # fmt: skip

    def _plan(
        self, program: Compilation, sizes: tuple[Size, ...], fields: tuple[Field, ...]
    ) -> PlanView:
        host, facts, mesh = program.host, program.local.dims, program.local.mesh
        print_ = Sizes({s.symbol: field_of("s", s.name) for s in sizes})
        free = frozenset(s.name for s in host.scalars)
        held = tuple(
            Condition(holds, self.texts.setdefault(text, len(self.texts)))
            for holds, text in conditions(host, facts, free, local_bounds(host, mesh), print_)
        )
        pointers = tuple(
            self._pointer(host.buffer[f.source], f, host, print_)
            for f in fields
            if f.given and f.bytes is not None
        )
        planned = self.package.sizes_of(program)
        sized = f", planned for {', '.join(f'{n} = {s}' for n, s in planned.items())}"
        tail = "".join(f"_{n}{s}" for n, s in planned.items())
        printer = PlanPrinter(
            self.plan_names.fresh(program.targets[0] + tail, "plan"),
            ", ".join(program.targets) + (sized if planned else ""),
            host,
            {f.source: f for f in fields},
            {s.symbol: s.name for s in sizes},
            _numbers(host),
            print_,
            mesh,
            self.axes,
        )
        view = printer.view(held, pointers)
        self.helpers |= print_.called
        return view

    def _pointer(self, buffer: Buffer, field_: Field, host: HostProgram, print_: Sizes) -> Pointer:
        alignment = buffer.alignment
        text = literal(
            f"`{buffer.name}` is NULL, or at no multiple of the bytes that it needs: {alignment}"
        )
        number = self.pointers.setdefault(text, len(self.pointers))
        return Pointer(field_.name, print_.text(buffer.elements), alignment, number)

    def _build(
        self, target: str, plans: tuple[PlanView, ...], cubins: dict[bytes, Cubin]
    ) -> BuildView:
        """Return the build for a GPU; new machine code is added to `cubins`."""
        codes, own = list[KernelCode](), list[BuildPlan]()
        for program, plan in zip(self.package.programs, plans, strict=True):
            if target not in program.targets:
                continue
            own.append(BuildPlan(plan.name, len(codes)))
            kernels = {k.kernel: k for k in program.host.launches}
            for name, launch in kernels.items():
                content = self.package.artifacts[name, target].cubin
                cubin = cubins.setdefault(content, Cubin(f"{name}_{target}", content))
                x, y, z = launch.cluster
                large = "true" if x * y * z > 8 else "false"
                codes.append(KernelCode(name, cubin.name, launch.shared_bytes, large))
        just_one = "false" if target[-1].isdigit() else "true"
        major, minor = divmod(find(target).capability, 10)
        return BuildView(target, major, minor, just_one, tuple(codes), tuple(own))


def _axes(mesh: Mesh | None) -> Iterator[Axis]:
    """Yield the axes of a mesh, outermost first."""
    names, sizes = FieldNames(), () if mesh is None else mesh.shape
    for k, (source, size) in enumerate(() if mesh is None else mesh.axes):
        yield Axis(names.add(source, "axis"), size, prod(sizes[k + 1 :]), source)


def _numbers(host: HostProgram) -> Mapping[str, int]:
    """Return the index of each kernel in the array of functions."""
    return {name: k for k, name in enumerate(dict.fromkeys(x.kernel for x in host.launches))}


def _number(value: bool | int | float, dtype: DType) -> str:
    """Return a default value as C; empty if it is not finite."""
    import numpy as np

    from fusec.kernel import nodes
    from fusec.kernel.ctext import literal as number
    from fusec.run.launch import pack_scalar

    if dtype.is_half:
        return str(pack_scalar(value, dtype).value)
    own = np.asarray(value).astype(dtype.numpy).item()
    if not math.isfinite(own):
        return ""
    match number(own, dtype):
        case nodes.Call(arguments=(found,)) | nodes.Grouped(inside=found):  # of a type, and INT_MIN
            return str(found)
        case found:
            return str(found)
