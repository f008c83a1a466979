"""Multiple results of an operation: a tuple whose use as a single tensor is rejected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from fusec.diagnostics import FusecError
from fusec.parse.dsl.place import placed
from fusec.parse.dsl.refused import MissingName


class Results(tuple[Any, ...]):
    """The results of one call, by index and by name: `topk(x, 2)[0]` and `topk(x, 2).values`."""

    op: str
    names: Sequence[str]

    @classmethod
    def of(cls, op: str, names: Sequence[str], results: Iterable[Any]) -> Results:
        """Return the results of a call of an operation by their names."""
        made = cls(results)
        made.op, made.names = op, names if len(names) == len(made) else ()
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("op", "names"):
            raise AttributeError(name)
        if name in self.names:
            return self[self.names.index(name)]
        with placed():
            told = self.refused().diagnostic
            raise MissingName(f"{told.message}, which have no `{name}`", help=told.help)

    def refused(self) -> FusecError:
        """Return the error for a use of the results as one tensor."""
        names = f" ({', '.join(self.names)})" if self.names else ""
        taken = ", ".join(["y", *["_"] * (len(self) - 1)])
        return FusecError(
            f"`{self.op}` returns {len(self)} values{names}",
            help=f"take one of them: `{taken} = fd.ops.{self.op}(...)`",
        )

    def __mul__(self, other: Any) -> NoReturn:
        with placed():  # otherwise the tuple would be repeated
            raise self.refused()

    __rmul__ = __mul__
