"""The JSON Schema of fusion files, for editors: derived from the tables of operations and types."""

from __future__ import annotations

import json
from typing import Any

from fusec import ops
from fusec.ir.dtype import DTYPES
from fusec.ir.op import REQUIRED, OpDef, Param
from fusec.ir.sharding_text import DEFAULT_AXES
from fusec.ops.frameworks import aliases
from fusec.options import SCHEDULERS
from fusec.pages.operations import signature
from fusec.pages.schedules import fields_of, records
from fusec.parse.reserved import RESERVED
from fusec.parse.segments import BOUNDARIES
from fusec.parse.sizes import FUNCTIONS as SIZE_FUNCTIONS
from fusec.schedule.space import Field

_LISTED = 16
"""Maximum number of values that an editor lists for a parameter; beyond it gets the limits."""
_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_SIZE = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_PARTS = {"type": "integer", "minimum": 1}
_EXPRESSION = {"type": "string", "pattern": r"^[A-Za-z0-9_.+*/%(), -]+$"}


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of fusion files."""
    properties = {
        "fusion": {
            "$ref": "#/definitions/name",
            "description": "Name of the fusion; kernel names begin with it.",
        },
        "doc": {"type": "string", "description": "What the fusion computes."},
        "mesh": _mesh(),
        "dims": _named("Sizes by name, with their defaults.", "#/definitions/dim"),
        "inputs": _named("Tensors and scalars that the fusion reads.", "#/definitions/input"),
        "ops": {
            "description": "Lines from top to bottom: `results = op(arguments)`, "
            "`y = x * w + 1.0`, or `half = D // 2`.",
            "type": ["array", "null"],
            "items": {"$ref": "#/definitions/op"},
        },
        "outputs": _outputs(),
        "shardings": _named("Shardings of values.", "#/definitions/sharding"),
        "segments": _named(
            "Values pinned to one segment, by segment name.", "#/definitions/segment"
        ),
        "boundaries": {
            "description": "`explicit`: groups of segments end only at segment_set.",
            "enum": list(BOUNDARIES),
        },
        "schedules": {
            "description": "Schedule parameters, by value, segment or scheduler.",
            "type": ["object", "null"],
            "properties": {name: {"$ref": f"#/definitions/{name}"} for name in records()},
            "propertyNames": {"$ref": "#/definitions/name"},
            "additionalProperties": {"$ref": "#/definitions/schedule"},
        },
        "phases": _named(
            "Parts of a joint graph, run separately, in order.", "#/definitions/phase"
        ),
        **{name: _reserved(name) for name in RESERVED},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A fusec fusion file",
        "type": "object",
        "required": ["fusion", "outputs"],
        "additionalProperties": False,
        "properties": properties,
        "definitions": {
            "name": {"type": "string", "pattern": f"^{_NAME}$"},
            "type": _type(),
            "dim": _dim(),
            "input": _input(),
            "op": _op(),
            "output_options": _output_options(),
            "shard": _shard(),
            "stream": _stream(),
            "ranks": _ranks(),
            "sharding": {**_object(_divided()), "minProperties": 1},
            "segment": _segment(),
            "phase": _phase(),
            "schedule": _schedule(),
            **{name: _schedule_of(name) for name in records()},
        },
    }


def schema_text() -> str:
    """Return the schema as the text of `fusec.schema.json`."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _reserved(name: str) -> dict[str, Any]:
    text = f"Not supported yet: `{name}` is reserved for a later version."
    return {"description": text, "deprecationMessage": text, "doNotSuggest": True, "not": {}}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "type": "object", "properties": properties, "additionalProperties": False,
    }  # fmt: skip
    return {**result, "required": list(required)} if required else result


def _schedule_of(scheduler: str) -> dict[str, Any]:
    """Return the parameters of a scheduler, with their values."""
    return {
        "description": f"Parameters of every {scheduler} segment.",
        **_object({f.name: _parameter(f) for f in fields_of(scheduler).values()}),
    }


def _schedule() -> dict[str, Any]:
    """Return the parameters of a segment, whose scheduler a schema does not know."""
    properties: dict[str, Any] = {}
    for scheduler in records():
        for field in fields_of(scheduler).values():
            known = properties.setdefault(field.name, {"description": "", "anyOf": []})
            known["description"] += f"{scheduler}: {field.doc}\n\n"
            values = {k: v for k, v in _parameter(field).items() if k != "description"}
            if values not in known["anyOf"]:
                known["anyOf"].append(values)
    for known in properties.values():
        known["description"] = known["description"].rstrip()
    return {
        "description": "Parameters; `fusec dump --schedule-space` prints those of each segment.",
        **_object(properties),
    }


def _parameter(field: Field) -> dict[str, Any]:
    values = field.values
    if isinstance(values, range) or len(values) > _LISTED:
        limits = {"type": "integer", "minimum": values[0], "maximum": values[-1]}
        return {**limits, "description": f"{field.doc}; {field.text}"}
    return {"enum": list(values), "description": field.doc}


def _named(description: str, reference: str) -> dict[str, Any]:
    return {
        "description": description,
        "type": ["object", "null"],
        "propertyNames": {"pattern": rf"^{_NAME}(\.stride[0-9]+)?$"},
        "additionalProperties": {"$ref": reference},
    }


def _type() -> dict[str, Any]:
    spellings = (word for d in DTYPES.values() for word in (d.name, d.long, d.nvfuser))
    names = "|".join(dict.fromkeys(spellings))
    return {
        "description": "`bf16[B, H]`: a tensor; `f32`: a scalar, `f32 = 1e-5` with a default.",
        "type": "string",
        "pattern": rf"^\s*({names})\s*(\[[^\]]*\])?\s*(=\s*(\S+|\[[^\]]*\]))?\s*$",
        "defaultSnippets": [{"label": f"{name}[...]", "body": f"{name}[$1]"} for name in DTYPES],
    }


def _dim() -> dict[str, Any]:
    facts = {
        "default": {**_SIZE, "description": "The size that kernels are planned for."},
        "multiple_of": {"type": "integer", "minimum": 1, "description": "A known divisor."},
        "buckets": {
            "type": "array",
            "items": _SIZE,
            "description": "Sizes that are compiled separately.",
        },
        "anonymous": {
            "type": "boolean",
            "description": "A size that may be equal to another, such as a -1 of a script.",
        },
    }
    return {
        "anyOf": [_SIZE, _EXPRESSION, _object(facts, "default")],
        "description": "A default size, properties of a size, or an expression of other dims.",
    }


def _input() -> dict[str, Any]:
    block = {
        "type": {"$ref": "#/definitions/type"},
        "strides": {
            "type": "array",
            "items": {"anyOf": [_SIZE, _EXPRESSION]},
            "description": "Strides in elements, one for each dim.",
        },
        "contiguity": {
            "type": "array",
            "items": {"type": ["boolean", "null"]},
            "description": "By dim: true is contiguous with the next inner dim, false has its own "
            "stride, null is broadcast or expanded.",
        },
        "stride_order": {
            "type": "array",
            "items": {"type": "integer", "minimum": 0},
            "description": "The position of each dim in memory, 0 for the innermost.",
        },
        "range": {
            "type": "array",
            "items": {"type": "number"},
            "minItems": 2,
            "maxItems": 2,
            "description": "The interval of random inputs.",
        },
        "default": {
            "type": ["number", "boolean", "array"],
            "items": {"type": "number"},
            "maxItems": 2,
            "description": "The default of a scalar; real and imaginary parts if complex.",
        },
        "on_cpu": {"type": "boolean", "description": "A 0-dim tensor in CPU memory."},
        "generator": {
            "enum": ["seed", "offset"],
            "description": "A u64[] that the program's random generator provides, not the caller.",
        },
        **_divided(),
    }
    return {"anyOf": [{"$ref": "#/definitions/type"}, _object(block, "type")]}


def _op() -> dict[str, Any]:
    """Return the form of an op line, the names that may be in it, and a hover for each."""
    known = "|".join((*ops.TABLE, *aliases(), *SIZE_FUNCTIONS))
    return {
        "type": "string",
        "allOf": [
            {"pattern": _line(_NAME), "patternErrorMessage": _FORM},
            # For a line of the right form, whether its operation exists.
            {
                "if": {"pattern": _line(_NAME)},
                "then": {"pattern": _line(known), "patternErrorMessage": _UNKNOWN},
            },
            *(_hover(op) for op in ops.TABLE.values()),
        ],
        "defaultSnippets": [_snippet(op) for op in ops.TABLE.values()],
    }


_FORM = "an op line is `results = op(arguments)` or `name = expression`"
_UNKNOWN = "unknown operation: `fusec ops` lists all, `fusec ops NAME` maps names of PyTorch"


def _line(names: str) -> str:
    """Return the pattern of an op line whose operation has one of some names."""
    results, rest = rf"{_NAME}(\s*,\s*{_NAME})*\s*=", r"(\s*[.\[][\s\S]*)?"
    # Names after a dot may be methods, attributes, or of a framework; none of them is checked.
    dotted = rf"{_NAME}(\s*\.\s*{_NAME})+\s*(\([\s\S]*\))?{rest}"
    grouped = r"\([\s\S]*\)\s*[.\[][\s\S]*"
    part = rf"{_NAME}\s*\[[\s\S]*\]{rest}"
    call = rf"{results}\s*(({names})\s*\([\s\S]*\){rest}|{dotted}|{part}|{grouped})"
    # A single call or a single name is not an expression: operations are checked by name.
    signs = r"(//|\*\*|<<|>>|[<>=!]=|[-+*/%@&|^~<>])"
    alone = r"(?!\s*[\w.]+\s*(\([^()]*\)\s*)?$)"
    expression = rf"{_NAME}\s*=(?!=){alone}[\s\S]*{signs}[\s\S]*"
    number = rf"{_NAME}\s*=\s*(\d[\w.]*|\.\d\w*|[Tt]rue|[Ff]alse|inf|nan)"
    return rf"^\s*({call}|{expression}|{number})\s*$"


def _hover(op: OpDef) -> dict[str, Any]:
    """Return the hover text of a line whose outermost operation is `op`."""
    return {
        "if": {"pattern": rf"^[^=]*=\s*{op.name}\s*\("},
        "then": {"markdownDescription": f"```\n{signature(op)}\n```\n\n{op.doc}"},
    }


def _snippet(op: OpDef) -> dict[str, str]:
    required = [p for p in op.params if p.default is REQUIRED]
    arguments = [_hole(p, k) for k, p in enumerate(required, len(op.results) + 1)]
    results = ", ".join(f"${{{k}:{name}}}" for k, name in enumerate(op.results, 1))
    return {
        "label": op.name,
        "description": f"{signature(op)}\n\n{op.doc}",
        "body": f"{results} = {op.name}({', '.join(arguments)})",
    }


def _hole(param: Param, number: int) -> str:
    if param.is_operand:
        return f"${{{number}:{param.name}}}"
    return f"{param.name}=${{{number}}}"


def _output_options() -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "null"},
            _object(
                {
                    "alias": {
                        "$ref": "#/definitions/name",
                        "description": "The input that the output aliases.",
                    },
                    "stride_order": {
                        "type": "array",
                        "items": {"type": "integer", "minimum": 0},
                        "description": "The position of each dim in memory, 0 for the innermost.",
                    },
                    **_divided(),
                }
            ),
        ]
    }


def _outputs() -> dict[str, Any]:
    options = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"$ref": "#/definitions/output_options"},
    }
    single = {**options, "maxProperties": 1}
    return {
        "description": "Values that the fusion returns.",
        "anyOf": [
            {
                "type": "array",
                "minItems": 1,
                "items": {"anyOf": [{"$ref": "#/definitions/name"}, single]},
            },
            options,
        ],
    }


def _mesh() -> dict[str, Any]:
    size = {"type": "integer", "minimum": 1}
    return {
        "description": "Device mesh: `[4]` has one axis, `mesh`; `[2, 4]` has mesh_y and mesh_x; "
        "`{dp: 2, tp: 4}` names the axes.",
        "anyOf": [
            {"type": "array", "items": size, "minItems": 1, "maxItems": len(DEFAULT_AXES)},
            {
                "type": "object",
                "propertyNames": {"$ref": "#/definitions/name"},
                "additionalProperties": size,
                "minProperties": 1,
            },
        ],
    }


def _divided() -> dict[str, Any]:
    return {key: {"$ref": f"#/definitions/{key}"} for key in ("shard", "stream", "ranks")}


def _by_dim(description: str, factor: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "type": "object",
        "propertyNames": {"pattern": "^-?[0-9]+$"},
        "additionalProperties": factor,
    }


def _shard() -> dict[str, Any]:
    parts = {"anyOf": [_PARTS, _EXPRESSION]}
    factor = {**_object({"whole": parts, "stream": parts}), "minProperties": 1, "maxProperties": 1}
    axis = {"$ref": "#/definitions/name"}
    return _by_dim(
        "The mesh axis that shards each dim, or several, outermost first; `{}`: replicated on "
        "every rank.",
        {"anyOf": [axis, {"type": "array", "items": {"anyOf": [axis, factor]}}]},
    )


def _ranks() -> dict[str, Any]:
    return {
        "description": "The ranks that hold a value, for a mesh with one axis.",
        "type": "array",
        "items": {"type": "integer", "minimum": 0},
        "minItems": 1,
    }


def _stream() -> dict[str, Any]:
    slices = _by_dim("The number of slices of a dim in a loop over streams.",
                     {"anyOf": [_PARTS, _EXPRESSION]})  # fmt: skip
    return {"anyOf": [{"type": "integer"}, slices]}


def _phase() -> dict[str, Any]:
    names = {"type": "array", "items": {"$ref": "#/definitions/name"}}
    block = {
        "inputs": {**names, "description": "Inputs that no earlier phase takes."},
        "outputs": {**names, "description": "Outputs that the phase computes."},
    }
    return {"anyOf": [names, _object(block, "outputs")]}


def _segment() -> dict[str, Any]:
    values = {"type": "array", "items": {"$ref": "#/definitions/name"}}
    pinned = {"values": values, "scheduler": {"enum": list(SCHEDULERS)}}
    pinned["open"] = {"type": "boolean"}
    return {"anyOf": [values, _object(pinned, "values")]}
