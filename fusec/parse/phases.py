"""The `phases:` of a file: the outputs of each part of a joint graph, in order."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.diagnostics import FusecError, Span
from fusec.ir.annotations import Phase
from fusec.ir.graph import Fusion
from fusec.ops.names import check_name
from fusec.parse import fields
from fusec.parse.yaml_nodes import Mapping, Scalar, YamlNode

_HELP = "write `forward: [y]` or `backward: {inputs: [dy], outputs: [dx]}`"


def phases_of(node: YamlNode, fusion: Fusion) -> tuple[Phase, ...]:
    """Return the phases that the file names; every output belongs to one of them."""
    root = fields.mapping(node, "phases (a mapping)", _HELP)
    inputs = [i.value.name for i in fusion.inputs]
    outputs = [o.value.name for o in fusion.outputs]
    taken: dict[str, tuple[str, Span]] = {}
    phases: list[Phase] = []
    for entry in root.entries:
        name, options, given = entry.key.text, entry.value, None
        check_name(name, "phase", entry.key.span)
        made: YamlNode | None = options
        if isinstance(options, Mapping):
            fields.check_fields(options, ("inputs", "outputs"), f"phase `{name}`")
            given, made = options.get("inputs"), options.get("outputs")
        if made is None:
            raise FusecError(f"phase `{name}` needs `outputs`", span=entry.key.span, help=_HELP)
        own = () if given is None else _names(given, name, "input", inputs, taken)
        results = _names(made, name, "output", outputs, taken)
        phases.append(Phase(name, tuple(own), tuple(results), entry.key.span))
    missing = [o for o in outputs if o not in taken]
    if missing:
        last = phases[-1] if phases else None
        listed = ", ".join([*last.outputs, missing[0]]) if last is not None else ""
        help = _HELP if last is None else f"list it in a phase, as in `{last.name}: [{listed}]`"
        if last is not None and last.inputs:
            given = f"inputs: [{', '.join(last.inputs)}], outputs: [{listed}]"
            help = f"list it in a phase, as in `{last.name}: {{{given}}}`"
        where = root.span if last is None or last.span is None else last.span
        raise FusecError(f"output `{missing[0]}` is in no phase", span=where, help=help)
    if len(phases) < 2:
        raise FusecError("a joint graph needs at least two phases", span=root.span, help=_HELP)
    return tuple(phases)


def _names(
    node: YamlNode, phase: str, kind: str, known: Iterable[str], taken: dict[str, tuple[str, Span]]
) -> list[str]:
    """Return listed names, each an input or output of the fusion that is in no earlier phase."""
    names: list[str] = []
    alone = isinstance(node, Scalar) and node.text in known
    help = f"write `[{node.text}]`" if isinstance(node, Scalar) and alone else _HELP
    for item in fields.listing(node, f"a list of {kind}s", help).items:
        name = fields.text(item, f"the name of an {kind}")
        if name not in known:
            raise FusecError(
                f"`{name}` is not an {kind} of the fusion",
                span=item.span,
                help=fields.did_you_mean(name, list(known)) or f"one of {', '.join(known)}",
            )
        if name in taken:
            first, place = taken[name]
            raise FusecError(
                f"`{name}` is in two phases" if first != phase else f"`{name}` is listed twice",
                span=item.span,
                notes=(f"first listed at {place.place()}, in phase `{first}`",),
            )
        taken[name] = (phase, item.span)
        names.append(name)
    return names
