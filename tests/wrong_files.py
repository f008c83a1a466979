"""Wrong files: an example of an operation with one mistake in its inputs or its call."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from followed import error_of

from fusec.ops import TABLE
from fusec.ops.examples import examples

SIZES = {"B": 8, "H": 16, "S": 4, "K": 4, "N": 2, "D": 32, "T": 6, "C": 4, "Y": 4, "X": 6, "M": 8,
         "V": 12, "G": 3}  # fmt: skip
_DTYPES = ("f32", "bf16", "f64", "i64", "i32", "u8", "bool", "c64")
_PREFIXES = ("torch", "F", "np", "jnp", "fd.ops", "torch.nn.functional", "torch.special")
_WORDS = ("dim", "axis", "keepdims", "size", "input", "other")
_EXTRA = ("1", "x", "0.5", "true", "none", "dim=1", "dtype=f16", "out=x", "keepdim=true",
          "inplace=true")  # fmt: skip
_LITERALS = ("1", "0.5", "true", "none", "[1, 0]", "-1", "'mean'")
_TYPE = re.compile(r"(\w+): (\w+)\[(.*)\]")
_ARGUMENT = re.compile(r"(?:[^,\[\]()]|\[[^\]]*\]|\([^)]*\))+")


@dataclass(frozen=True)
class Example:
    """Inputs, op lines before the last one, and the last one: results, operation, arguments."""

    inputs: tuple[str, ...]
    before: tuple[str, ...]
    names: str
    function: str
    arguments: tuple[str, ...]
    line: str = ""
    """What the last line is instead of a call."""

    @property
    def text(self) -> str:
        """Return the file."""
        call = self.line or f"{self.function}({', '.join(self.arguments)})"
        lines = (*self.before, f"{self.names} = {call}")
        dims = ", ".join(f"{name}: {size}" for name, size in SIZES.items())
        inputs = "".join(f"  {line}\n" for line in self.inputs)
        outputs = [name for name in re.split(r"\s*,\s*", self.names) if name != "_"]
        return (
            f"fusion: f\ndims: {{{dims}}}\n"
            + (f"inputs:\n{inputs}" if inputs else "")
            + "ops:\n"
            + "".join(f"  - {line}\n" for line in lines)
            + f"outputs: [{', '.join(outputs)}]\n"
        )


@cache
def right() -> Sequence[Example]:
    """Return an example of each operation that has one that is a file."""
    return [found for op in TABLE.values() if (found := _first(map(_example, examples(op))))]


def _first(made: Iterator[Example | None]) -> Example | None:
    return next((e for e in made if e is not None and error_of(e.text) is None), None)


def _example(text: str) -> Example | None:
    *parts, last = text.split("; ")
    names, _, call = last.partition(" = ")
    found = re.fullmatch(r"(\w+)\((.*)\)", call)
    if found is None:
        return None
    before = tuple(part for part in parts if " = " in part)
    inputs = tuple(part for part in parts if " = " not in part)
    arguments = tuple(a.strip() for a in _ARGUMENT.findall(found[2]))
    return Example(inputs, before, names, found[1], arguments)


def wrong(rng: random.Random, example: Example) -> Example | None:
    """Return an example with one mistake, which may be none after all; None where it has no place.

    Mistakes are of types, shapes, axes, kinds of arguments, their order, number and names, of
    results, and of the language: Python's words, methods and other frameworks' names.
    """
    return rng.choice(_MISTAKES)(rng, example)


def wrong_input(rng: random.Random, example: Example) -> Example | None:
    """Return an example with an input of another type or shape; None where it has no tensor."""
    place = rng.randrange(len(example.inputs)) if example.inputs else None
    found = None if place is None else _TYPE.fullmatch(example.inputs[place])
    if found is None or place is None:
        return None
    dtype, shape = found[2], [size for size in found[3].split(", ") if size]
    axis = rng.randrange(len(shape)) if shape else None
    kind = rng.choice(("dtype", "add", "drop", "order", "size", "number"))
    if kind == "dtype":
        dtype = rng.choice(_DTYPES)
    elif axis is None:
        return None
    elif kind == "add":
        shape.insert(axis, rng.choice([*SIZES]))
    elif kind == "drop":
        del shape[axis]
    elif kind == "order":
        rng.shuffle(shape)
    else:
        shape[axis] = rng.choice([*SIZES]) if kind == "size" else str(SIZES.get(shape[axis], 5))
    inputs = list(example.inputs)
    inputs[place] = f"{found[1]}: {dtype}[{', '.join(shape)}]"
    return replace(example, inputs=tuple(inputs))


def _in_argument(rng: random.Random, example: Example) -> Example | None:
    if not example.arguments:
        return None
    given = list(example.arguments)
    place = rng.randrange(len(given))
    kind = rng.choice(("axis", "quoted", "keyword", "literal"))
    if kind == "axis":
        other = str(rng.choice([-4, -2, -1, 0, 2, 3, 5]))
        given[place] = re.sub(r"-?\b\d\b", other, given[place])
    elif kind == "quoted":
        given[place] = re.sub(r"(\w+=)?(.*)", r'\1"\2"', given[place], count=1)
    elif kind == "keyword" and "=" not in given[place]:
        names = [p.name for p in TABLE[example.function].params]
        given[place] = f"{rng.choice([*names, *_WORDS])}={given[place]}"
    else:
        given[place] = rng.choice(_LITERALS)
    return replace(example, arguments=tuple(given))


def _in_call(rng: random.Random, example: Example) -> Example | None:
    given, function = list(example.arguments), example.function
    kind = rng.choice(("more", "order", "spread", "prefix", "method"))
    if kind == "more":
        given.append(rng.choice(_EXTRA))
    elif kind == "order":
        rng.shuffle(given)
    elif kind == "spread":
        given = [a[1:-1] if a.startswith("[") else a for a in given]
    elif kind == "prefix":
        function = f"{rng.choice(_PREFIXES)}.{function}"
    elif given and given[0].isidentifier():
        function = f"{given.pop(0)}.{function}"
    return replace(example, function=function, arguments=tuple(given))


def _in_line(rng: random.Random, example: Example) -> Example | None:
    call = f"{example.function}({', '.join(example.arguments)})"
    kind = rng.choice(("results", "and", "or", "if", "product", "chain"))
    if kind == "results":
        return replace(example, names=rng.choice(("a_1, b_1", "y", "a_1, b_1, c_1", "q_1")))
    if not example.arguments or "," in example.names:
        return None
    first = example.arguments[0]
    lines = {
        "and": f"{call} and {call}",
        "or": f"{call} or {call}",
        "if": f"{call} if {first} > 0 else {first}",
        "product": f"{call} @ {first}",
        "chain": f"0 < {call} < 1",
    }
    return replace(example, line=lines[kind])


_Mistake = Callable[[random.Random, Example], "Example | None"]
_MISTAKES: tuple[_Mistake, ...] = (wrong_input, _in_argument, _in_call, _in_line)
