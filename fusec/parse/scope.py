"""The names of a file: dims and values share one namespace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusec import ops
from fusec.codes.names import DEFINED_TWICE, UNDEFINED_NAME, USED_BEFORE_DEFINITION
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, Span
from fusec.ir.dim import Dim
from fusec.ir.graph import Operand, Value
from fusec.ops.names import check_name
from fusec.parse.foreign.constants import MODULES

CUTOFF = 0.6


_NUMBERS = {
    "eps": "f32 = 1e-5", "epsilon": "f32 = 1e-5", "lr": "f32 = 1e-3",
    "learning_rate": "f32 = 1e-3", "beta": "f32 = 0.9", "momentum": "f32 = 0.9",
    "weight_decay": "f32 = 0.01", "wd": "f32 = 0.01", "scale": "f32 = 1.0", "alpha": "f32 = 1.0",
    "gamma": "f32 = 1.0", "lambda": "f32 = 1.0", "temperature": "f32 = 1.0", "tau": "f32 = 1.0",
    "temp": "f32 = 1.0", "softcap": "f32 = 50.0", "dropout_p": "f32 = 0.1",
    "threshold": "f32 = 0.5",
    "sm_scale": "f32 = 1.0", "softmax_scale": "f32 = 1.0", "label_smoothing": "f32 = 0.1",
    "smoothing": "f32 = 0.1", "slope": "f32 = 0.01", "negative_slope": "f32 = 0.01",
    "delta": "f32 = 1.0", "step": "i64 = 1", "margin": "f32 = 1.0", "pad_id": "i64 = 0",
    "ignore_index": "i64 = -100", "decay": "f32 = 0.99",
}  # fmt: skip
"""Typical names of numbers in programs, with a scalar input for each."""


_CONSTANTS = {
    "inf": "inf", "infinity": "inf", "ninf": "-inf", "nan": "nan", "null": "none", "nil": "none",
    "nullptr": "none", "pi": "3.141592653589793",
}  # fmt: skip
"""Constants as other languages spell them."""


def near(name: str, known: Iterable[str], cutoff: float = CUTOFF) -> str | None:
    """Return the name of `known` that `name` was probably meant to be.

    cutoff: the minimum similarity, from 0 to 1.
    """
    names = list(known)
    same = [k for k in names if k.lower() == name.lower()]
    import difflib

    close = same or difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return close[0] if close else None


def _declared_number(name: str) -> str | None:
    return _NUMBERS.get(name.lower().rstrip("_0123456789"))


def number_called(name: str) -> str | None:
    """Return the usual value of a number with a typical name; None for other names."""
    declared = _declared_number(name)
    return None if declared is None else declared.partition("= ")[2]


def circle(name: str, uses: Mapping[str, Iterable[str]]) -> list[str] | None:
    """Return the names of a cycle from `name` to itself, each computed from the next one."""
    paths, seen = [[name]], set[str]()
    while paths:
        path = paths.pop()
        for used in uses.get(path[-1], ()):
            if used == name:
                return path
            if used not in seen:
                seen.add(used)
                paths.append([*path, used])
    return None


def circle_text(names: Iterable[str]) -> str:
    """Return the message for names that are computed from each other."""
    first, *others = (f"`{n}`" for n in names)
    if not others:
        return f"{first} is computed from itself"
    return f"{' and '.join([first, *others])} are computed from each other"


class Skip(Exception):
    """A use of a name whose definition was wrong, which was already reported."""


@dataclass(frozen=True)
class Poison:
    """The meaning of a name whose definition was wrong."""


Meaning = Operand | Dim | Poison


class Scope:
    """The meanings of names so far, and where they were defined."""

    def __init__(self) -> None:
        """Start empty."""
        self._meanings: dict[str, Meaning] = {}
        self._spans: dict[str, Span] = {}
        self.later: Mapping[str, Span] = {}
        self.uses: Mapping[str, Iterable[str]] = {}
        """The names from which each name of an op line is computed."""
        self.incomplete = False
        """Whether a section of declarations could not be read: names may be declared there."""
        self.coming: Mapping[str, Dim] = {}
        """The sizes of scalar inputs that are declared further down."""

    def check_new(self, name: str, what: str, span: Span) -> None:
        """Raise FusecError unless `name` may be defined at `span`."""
        check_name(name, what, span)
        if name in self._meanings:
            raise FusecError(
                f"`{name}` is defined twice",
                span=span,
                notes=(f"first defined at {self._spans[name].place()}",),
                help=f"every name is defined once: write `{name}_2` here and in later lines",
                code=DEFINED_TWICE,
            )

    def define(self, name: str, meaning: Meaning, span: Span) -> None:
        """Give a name its meaning."""
        self._meanings[name] = meaning
        self._spans[name] = span

    def poison(self, name: str, span: Span) -> None:
        """Suppress errors about uses of a wrongly defined name."""
        self.define(name, Poison(), self._spans.get(name, span))

    def set_incomplete(self) -> None:
        """Suppress errors about uses of unknown names."""
        self.incomplete = True

    def knows(self, name: str) -> bool:
        """Return whether a name has a meaning so far."""
        return name in self._meanings

    def meaning(self, name: str) -> Meaning | None:
        """Return the meaning of a name so far; None if it has none."""
        return self._meanings.get(name)

    def is_undefined(self, name: str) -> bool:
        """Return whether nothing in the file can define a name."""
        known = name in self._meanings or name in self.later or name in self.coming
        return not known and not self.incomplete

    def is_dim(self, name: str) -> bool:
        """Return whether a name means a size."""
        return isinstance(self._meanings.get(name), Dim)

    @property
    def dims(self) -> list[str]:
        """Return the names that are dims of their own, in order."""
        return [n for n, m in self._meanings.items() if isinstance(m, Dim) and str(m) == n]

    def span_of(self, name: str) -> Span | None:
        """Return where a name was defined."""
        return self._spans.get(name)

    def find(self, name: str, span: Span, otherwise: str | None = None) -> Operand | Dim:
        """Return the meaning of `name` as used at `span`; `otherwise`: the help if it has none."""
        meaning = self._meanings.get(name)
        if isinstance(meaning, Poison):
            raise Skip
        if meaning is None and name in self.coming:
            return self.coming[name]
        if meaning is None and self.incomplete:
            raise Skip
        if meaning is None:
            raise self._undefined(name, span, otherwise)
        return meaning

    def _abbreviated(self, name: str) -> str | None:
        """Return the only unused value whose name is a longer or shorter form of `name`."""
        used = {n for names in self.uses.values() for n in names}
        unused = [n for n, m in self._meanings.items() if isinstance(m, Value) and n not in used]
        alike = [n for n in unused if name.startswith(n) or n.startswith(name)]
        return alike[0] if len(alike) == 1 and alike[0] not in self.uses else None

    def _undefined(self, name: str, span: Span, otherwise: str | None) -> FusecError:
        around = circle(name, self.uses) if name in self.later else None
        if around is not None:
            return FusecError(
                circle_text(reversed(around)),
                span=span,
                notes=[f"`{n}` is defined at {self.later[n].place()}" for n in around],
                help=f"an operand has a value already: if `{name}` is an input, declare it under "
                "`inputs:`, and give the result a name of its own"
                if len(around) == 1
                else "one of these lines must use an input, or a result of a line above",
                code=USED_BEFORE_DEFINITION,
            )
        if name in self.later:
            return FusecError(
                f"`{name}` is used before it is defined",
                span=span,
                notes=(f"it is defined at {self.later[name].place()}",),
                help="files are read from top to bottom: move that line up",
                code=USED_BEFORE_DEFINITION,
            )
        owner, _, rest = name.partition(".")
        if owner == "self" and rest == "training":
            help = "a file is of one mode: write what it computes in training, or in evaluation"
            return FusecError(f"undefined name `{name}`", span=span, help=help, code=UNDEFINED_NAME)
        if owner == "self" and rest:
            known = rest if rest in self._meanings else None
            help = f"write `{rest}`" if known else f"declare `{rest}` under `inputs:`, and write it"
            return FusecError(f"undefined name `{name}`", span=span, help=help, code=UNDEFINED_NAME)
        if owner in ("config", "cfg", "args", "hparams") and rest.isidentifier():
            help = f"declare `{rest}` under `dims:` or `inputs:`, and write it"
            return FusecError(f"undefined name `{name}`", span=span, help=help, code=UNDEFINED_NAME)
        constant = _CONSTANTS.get((rest if owner in MODULES else name).lower())
        if constant is not None and constant != name:
            help = f"write `{constant}`"
            return FusecError(f"undefined name `{name}`", span=span, help=help, code=UNDEFINED_NAME)
        nearest = near(name, self._meanings) or self._abbreviated(name)
        value = _declared_number(name)
        if value is not None and (nearest is None or nearest.lower() != name.lower()):
            nearest = None
            otherwise = f"write the number, or declare `{name}: {value}` under `inputs:`"
        help = otherwise if nearest is None else f"did you mean `{nearest}`?"
        if help is None and name in ops.TABLE:
            help = f"`{name}` is an operation: call it, as in `{name}(x)`"
        if help is None:
            help = (
                f"define it in a line above, or declare an input, as in `{name}: f32[B, H]`, under "
                "`inputs:`, or a size under `dims:`"
            )
        return FusecError(f"undefined name `{name}`", span=span, help=help, code=UNDEFINED_NAME)
