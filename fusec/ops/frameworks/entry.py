"""One name of another framework: its parameters, and its equivalent in fusec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusec.dataclasses import dataclass, replace

NEEDED = object()
"""The default of a required parameter."""

IGNORED = frozenset({
    "layout", "device", "pin_memory", "non_blocking", "memory_format", "out", "requires_grad",
    "inplace", "cudnn_enable", "cudnn_enabled", "copy",
})  # fmt: skip
"""Parameters that have no effect in a fusion, for any argument."""

LIKE = {"type_as": "cast", "view_as": "reshape", "reshape_as": "reshape", "expand_as": "expand"}
"""Methods that give a tensor the type or the shape of another, with fusec's operation for each."""

PAIRS = {"max": ("maximum", "argmax"), "min": ("minimum", "argmin")}
"""PyTorch's `max` and `min` of two tensors, and the operation of the second result along a dim."""

PARTS: Mapping[str, tuple[str | None, ...]] = {
    "std_mean": ("std(input, dim, correction, keepdim)", "mean(input, dim, keepdim)"),
    "aminmax": ("min(input, dim, keepdim)", "max(input, dim, keepdim)"),
    "cummax": ("cummax(input, dim)", None), "cummin": ("cummin(input, dim)", None),
    "meshgrid": ("expand(unsqueeze(a, 1), [size(a, 0), size(b, 0)])",
                 "expand(unsqueeze(b, 0), [size(a, 0), size(b, 0)])"),
    "modf": ("frac(x)", "trunc(x)"),
    "divmod": ("a // b", "a % b"),
    "kthvalue": (
        "{keepdim=false} select(sort(input, dim)[0], k - 1, dim) | "
        "{keepdim=true} narrow(sort(input, dim)[0], dim, k - 1, 1)",
        "{keepdim=false} select(sort(input, dim)[1], k - 1, dim) | "
        "{keepdim=true} narrow(sort(input, dim)[1], dim, k - 1, 1)",
    ),
    "median": (
        "{keepdim=false} select(sort(input, dim)[0], (size(input, dim) - 1) // 2, dim) | "
        "{keepdim=true} narrow(sort(input, dim)[0], dim, (size(input, dim) - 1) // 2, 1)",
        "{keepdim=false} select(sort(input, dim)[1], (size(input, dim) - 1) // 2, dim) | "
        "{keepdim=true} narrow(sort(input, dim)[1], dim, (size(input, dim) - 1) // 2, 1)",
    ),
}  # fmt: skip
"""Functions with several results, each a separate operation; None: no operation."""

_WORDS = {"none": None, "true": True, "false": False, "inf": float("inf")}


_FRAMEWORKS = {
    "torch": "PyTorch", "torch.Tensor": "PyTorch", "numpy": "NumPy", "jax": "JAX",
    "nvfuser": "nvFuser", "aten": "ATen", "prims": "ATen", "models": "model code",
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """A parameter of a framework's function; `variadic`: it takes all further positional ones."""

    name: str
    default: Any = NEEDED
    variadic: bool = False


@dataclass(frozen=True)
class Entry:
    """What fusec knows about one name.

    namespace: torch (with torch.nn.functional and torch.special), torch.Tensor, aten, prims, numpy,
        jax, nvfuser or models. overload: ATen's, as `Tensor`, else empty.
    kind: `same`, an operation of fusec with these arguments; `alias`, a name that fusec also
        accepts; `other`, written differently; `unsupported`.
    expressions: what to write, with the parameters as names; the first that uses all arguments and
        whose conditions hold.
    conditions: of each expression, `{ndim=1, mode=nearest}` before it: the number of dims of the
        first argument, `integers` or `complex` for its type, or the value of an argument, which
        then has its place; `step=size` for two equal arguments, `size:one` for one that is not a
        list, or a list of equal sizes, `weight:tensor` for one that is not a list;
        `other.ndim=1` is about the argument `other`.
    note: what else to say; for `unsupported` the reason. results: what the expressions return, if
    more than one value: `# results: the output, the mask` in a line of the tables.
    """

    namespace: str
    name: str
    overload: str
    kind: str
    parameters: tuple[Parameter, ...] = ()
    expressions: tuple[str, ...] = ()
    note: str = ""
    results: tuple[str, ...] = ()
    conditions: tuple[tuple[str, ...], ...] = ()

    @property
    def caveat(self) -> str:
        """Return the note in the form in which it follows a suggested line, as `of vectors`."""
        about = self.note.removeprefix("of ")
        return self.note if about == self.note else f"fusec has it for {about}"

    @property
    def forms(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        """Return the expressions with their conditions."""
        conditions = self.conditions or ((),) * len(self.expressions)
        return [*zip(self.expressions, conditions, strict=True)]

    def of(self, text: str) -> Entry:
        """Return the same name with other expressions, in the form of the tables."""
        forms = forms_of(text)
        return replace(
            self,
            expressions=tuple(expression for expression, _ in forms),
            conditions=tuple(conditions for _, conditions in forms),
        )

    @property
    def framework(self) -> str:
        """Return the framework's name."""
        return _FRAMEWORKS[self.namespace]

    @property
    def title(self) -> str:
        """Return the name as its framework's users know it: PyTorch's `unsqueeze(input, dim)`."""
        return f"{self.framework}'s `{self.signature}`"

    @property
    def signature(self) -> str:
        """Return the call with its parameters: `unsqueeze(input, dim)`."""
        shown = [p for p in self.parameters if p.name not in IGNORED]
        method = self.namespace == "torch.Tensor" and bool(shown)
        words = [_shown(p) for p in shown[1:] if method] or [_shown(p) for p in shown if not method]
        name = ".".join(filter(None, ("x" if method else "", self.name, self.overload)))
        return f"{name}({', '.join(words)})"


def _shown(parameter: Parameter) -> str:
    if parameter.default is NEEDED:
        return "*" * parameter.variadic + parameter.name
    names = {True: "true", False: "false", None: "none"}
    default = parameter.default
    text = names[default] if default is None or isinstance(default, bool) else default
    return f"{parameter.name}={text}"


def read_entry(namespace: str, line: str) -> Entry:
    """Return the entry of a line: `name(parameters) = expression`, or with `->`."""
    head, _, rest = line.partition(")")
    name, _, listed = head.partition("(")
    sign, _, rest = rest.strip().partition(" ")
    text, _, note = rest.partition(" # ")
    plain, _, overload = name.partition(".") if namespace in ("aten", "prims") else (name, "", "")
    _, several, results = note.strip().partition("results: ")
    forms = forms_of(text)
    return Entry(
        namespace, plain, overload, {"=": "alias", "->": "other"}[sign],
        tuple(_parameter(word.strip()) for word in listed.split(",") if word.strip()),
        tuple(expression for expression, _ in forms), note.strip(),
        tuple(results.split(", ")) if several else (),
        tuple(conditions for _, conditions in forms),
    )  # fmt: skip


def forms_of(text: str) -> Sequence[tuple[str, tuple[str, ...]]]:
    """Return expressions as the tables write them, each with its conditions."""
    return [_form(part.strip()) for part in text.split(" | ")]


def _form(text: str) -> tuple[str, tuple[str, ...]]:
    """Return an expression and its conditions."""
    if not text.startswith("{"):
        return text, ()
    conditions, _, expression = text[1:].partition("}")
    return expression.strip(), tuple(word.strip() for word in conditions.split(","))


def _parameter(word: str) -> Parameter:
    name, given, default = word.partition("=")
    if name.startswith("*"):
        return Parameter(name[1:], variadic=True)
    return Parameter(name, value_of(default)) if given else Parameter(name)


def value_of(text: str) -> Any:
    """Return the value of a default or a condition as the tables write it."""
    if text in _WORDS:
        return _WORDS[text]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text
