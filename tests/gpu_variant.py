"""A fusion in one kernel, with inputs that are drawn on the GPU and what PyTorch makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.torch_side import dtype_of
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.parse import read_text

Draw = Callable[["Drawing"], Mapping[str, Any]]
Wanted = Callable[..., Any]


@dataclass(frozen=True)
class Variant:
    """A fusion in one kernel: how inputs are drawn, and what PyTorch computes of them in fp64.

    ordered: whether sums are added in the same order each time; else runs agree on integers alone.
    """

    text: str
    scheduler: str
    fields: Mapping[str, Setting]
    exact: Draw
    wanted: Wanted
    random: Draw | None = None
    ordered: bool = True

    @property
    def fusion(self) -> Fusion:
        """Return the fusion as one segment of its scheduler, with its schedule set."""
        made = [v for op in read_text(self.text).nodes for v in op.outputs if not v.is_scalar]
        values = ", ".join(v.name for v in made)
        fields = ", ".join(f"{k}: {str(v).lower()}" for k, v in self.fields.items())
        text = f"segments:\n  whole: {{values: [{values}], scheduler: {self.scheduler}}}\n"
        if fields:
            text += f"schedules:\n  {self.scheduler}: {{{fields}}}\n"
        return read_text(self.text + text)

    def inputs(self, seed: int, *, exact: bool) -> list[Any]:
        """Return tensors on the GPU; those that are not said how are drawn by their types."""
        drawing = Drawing(read_text(self.text), seed)
        draw = self.exact if exact else self.random
        given = dict(draw(drawing)) if draw else {}
        names = [i.value.name for i in drawing.fusion.inputs]
        return [given[n] if n in given else drawing.normal(n) for n in names]

    def results(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """Return what PyTorch computes of inputs in fp64; only indices stay what they are."""
        integers = ("torch.int32", "torch.int64")
        wide = (x if str(x.dtype) in integers else x.double() for x in given)
        return tupled(self.wanted(*wide))


@dataclass
class Drawing:
    """Draws tensors for a fusion's inputs from a seed."""

    fusion: Fusion
    seed: int
    _generator: Any = field(init=False)

    def __post_init__(self) -> None:
        """Seed a generator on the GPU."""
        import torch

        self._generator = torch.Generator("cuda").manual_seed(self.seed)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the extents of an input."""
        (value,) = (i.value for i in self.fusion.inputs if i.value.name == name)
        return tuple(d.evaluate({}) for d in value.shape)

    def dtype(self, name: str) -> Any:
        """Return PyTorch's type of an input."""
        (value,) = (i.value for i in self.fusion.inputs if i.value.name == name)
        return dtype_of(value.dtype.name)

    def normal(self, name: str) -> Any:
        """Return normal floats; of integers, any between -100 and 100."""
        import torch

        if not self.dtype(name).is_floating_point:
            return self.integers(name, -100, 100)
        made = torch.randn(self.shape(name), device="cuda", generator=self._generator)
        return made.to(self.dtype(name))

    def integers(self, name: str, least: int, most: int) -> Any:
        """Return integers between two, both included, in the type of an input."""
        return self.whole(self.shape(name), least, most).to(self.dtype(name))

    def whole(self, shape: Sequence[int], least: int, most: int) -> Any:
        """Return integers between two, both included."""
        import torch

        given = {"device": "cuda", "generator": self._generator}
        return torch.randint(least, most + 1, tuple(shape), **given)

    def sparse(self, name: str, part: int) -> Any:
        """Return -1 and 1, each in one of 2 `part` places, among zeros."""
        drawn = self.whole(self.shape(name), 0, 2 * part - 1)
        return ((drawn == 0).float() - (drawn == 1).float()).to(self.dtype(name))

    def codes(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return rows of -1 and 1, of which two are far apart."""
        return (2 * self.whole(shape, 0, 1) - 1).to(dtype)


def tupled(found: Any) -> tuple[Any, ...]:
    """Return one result, or several, as a tuple."""
    return found if isinstance(found, tuple) else (found,)
