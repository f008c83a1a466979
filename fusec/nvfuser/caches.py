"""Handles of fusions in nvFuser's API, their executors, and caches of both."""

from __future__ import annotations

import functools
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fusec import executor
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, InternalError
from fusec.foreign import decoding, not_a, read_json
from fusec.parse.dsl.inputs import Actual, adopt
from fusec.parse.dsl.lists import is_list
from fusec.parse.dsl.place import placed

if TYPE_CHECKING:
    from fusec.nvfuser.definition import FusionDefinition
    from fusec.nvfuser.shardings import Sharding


_MOST_FORMS = 64
"""Maximum number of executions with different inputs that an executor can print."""


class Fusion:
    """The handle of a definition's fusion; two are equal if their definitions read the same."""

    def __init__(self, definition: FusionDefinition | None = None) -> None:
        """Create the handle of `definition`, or of the one that adopts this handle later."""
        self._definition = definition

    def adopt_definition(self, definition: FusionDefinition) -> None:
        """Set the definition that is created with this handle, as in nvFuser's first versions."""
        self._definition = definition

    @property
    def definition(self) -> FusionDefinition:
        """Return the definition."""
        if self._definition is None:
            with placed():
                raise FusecError("the Fusion has no definition yet")
        return self._definition

    @property
    def key(self) -> str:
        """Return the text of the definition."""
        return self.definition.calls.key()

    def inputs(self) -> list[Any]:
        """Return the inputs."""
        return self.definition.inputs()

    def outputs(self) -> list[Any]:
        """Return the outputs."""
        return self.definition.outputs()

    def execute(self, inputs: Iterable[Any], **options: Any) -> list[Any]:
        """Run the definition."""
        return self.definition.execute(inputs, **options)

    def print_math(self, from_outputs_only: bool = True) -> str:
        """Return the fusion in fusec's own text form."""
        from fusec.ir.text import to_text

        return to_text(self.definition.graph())

    def print_kernel(self) -> str:
        """Return the CUDA kernels."""
        return executor.describe(self.definition.graph(), "cuda")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fusion) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class FusionExecutorCache:
    """Runs one fusion, and records the inputs that it has run with."""

    def __init__(self, fusion: Fusion, fusion_id: int = 0, auto_schedule: bool = True) -> None:
        """Run `fusion`; its number has no effect."""
        if not auto_schedule:
            from fusec.parse.dsl.refused import refuse

            raise refuse("schedule", "FusionExecutorCache")
        self._fusion = fusion
        self._ran: OrderedDict[Any, tuple[Actual, ...]] = OrderedDict()

    def fusion(self) -> Fusion:
        """Return the fusion."""
        return self._fusion

    def execute(self, inputs: Iterable[Any], *, device: Any = None, **options: Any) -> list[Any]:
        """Run the fusion."""
        given = list(inputs)
        results = self._fusion.definition.run(given, device)
        key = _key(given)
        if key not in self._ran:
            self._ran[key] = tuple(form(a) for a in adopt(given))
            if len(self._ran) > _MOST_FORMS:
                self._ran.popitem(last=False)
        self._ran.move_to_end(key)
        return results

    def is_compiled(self, inputs: Iterable[Any], device: int = 0) -> bool:
        """Return whether the fusion has run with inputs of these types, shapes and strides."""
        return _key(inputs) in self._ran

    def get_cuda_kernel(
        self, inputs: Iterable[Any], intrinsic_code: bool = False, device: int = 0
    ) -> str:
        """Return the kernels for inputs that the fusion has run with."""
        return self._text(_key(inputs), "cuda")

    def get_scheduled_ir(
        self, inputs: Iterable[Any], tensor_transforms: bool = False, device: int = 0
    ) -> str:
        """Return the segments for inputs that the fusion has run with."""
        return self._text(_key(inputs), "segments")

    def get_most_recent_scheduled_ir(self, tensor_transforms: bool = False) -> str:
        """Return the segments of the last execution."""
        return self._text(self._last(), "segments")

    def get_most_recent_cuda_kernel(self) -> str:
        """Return the kernels of the last execution."""
        return self._text(self._last(), "cuda")

    def get_output_shardings(self) -> list[Sharding]:
        """Return the shardings of the last execution's outputs."""
        from fusec.nvfuser.shardings import output_shardings

        return output_shardings(self._fusion.definition.graph_for(self._ran[self._last()]))

    def _text(self, key: Any, what: str) -> str:
        forms = self._ran.get(key)
        if forms is None:
            with placed():
                raise FusecError("the fusion is not compiled for these inputs: execute it first")
        return executor.describe(self._fusion.definition.graph_for(forms), what)

    def _last(self) -> Any:
        if not self._ran:
            with placed():
                raise FusecError("the fusion has never been executed")
        return next(reversed(self._ran))


def form(actual: Actual) -> Actual:
    """Return a description of an input that does not reference its memory."""
    if actual.shape is None:
        return actual
    return replace(actual, array=_not_kept, write=_not_kept, wrap=None, tensor=None)


def _not_kept(*_: Any) -> Any:
    raise InternalError("the script reads values of an input that has only a shape")


def _key(inputs: Iterable[Any]) -> tuple[Any, ...]:
    """Return the key of a compiled fusion: types, shapes and strides, and numbers."""
    return tuple(
        (x.dtype, tuple(x.shape), x.stride() if callable(getattr(x, "stride", None)) else x.strides)
        if getattr(x, "shape", None) is not None
        else _key(x) if is_list(x) else x
        for x in inputs
    )  # fmt: skip


class LRUCache:
    """Executors by fusion; the least recently used one is evicted first."""

    def __init__(self, max_fusions: int = 16384) -> None:
        """Keep at most `max_fusions`."""
        self._most = max_fusions
        self._kept: OrderedDict[str, FusionExecutorCache] = OrderedDict()
        self._hits: dict[str, int] = {}
        self._lookups = self._compiled = 0

    def cache_compile(self, fusion: Fusion) -> FusionExecutorCache:
        """Return the executor of an equal fusion, or a new one."""
        self._lookups += 1
        found = self._kept.get(fusion.key)
        if found is None:
            self._compiled += 1
            found = self._kept[fusion.key] = FusionExecutorCache(fusion, self._compiled - 1)
            self._hits[fusion.key] = 0
            while len(self._kept) > self._most:
                del self._hits[self._kept.popitem(last=False)[0]]
        else:
            self._hits[fusion.key] += 1
        self._kept.move_to_end(fusion.key)
        return found

    def num_fusions(self) -> int:
        """Return the number of cached fusions."""
        return len(self._kept)

    def stats(self) -> str:
        """Return statistics in the form that nvFuser prints."""
        lines = [f"Max Fusions Allowed: {self._most}"]
        if not self._kept:
            return "\n".join([*lines, "The fusion cache is empty.\n"])
        hits = self._lookups - self._compiled
        lines += [
            f"Total Fusions in Cache: {len(self._kept)}",
            f"Total Unique Fusions Compiled: {self._compiled}",
            "Cache Hits by LRU ordering:",
            *(f"\t{k} -> {self._hits[key]} hits" for k, key in enumerate(reversed(self._kept))),
            f"Cache Lookups: {self._lookups}",
            f"Cache Hits: {hits}",
            f"Hit Rate: {100 * hits / self._lookups:.0f}%\n",
        ]
        return "\n".join(lines)


class LruFusionCache:
    """A decorator of functions that create definitions: equal ones share an executor."""

    def __init__(self, max_fusions: int = 16384) -> None:
        """Keep at most `max_fusions` executors."""
        self.cache = LRUCache(max_fusions)

    def __call__(self, create: Callable[..., FusionDefinition]) -> Any:
        """Return `create`, whose definitions run through the cache."""

        @functools.wraps(create)
        def wrapper(*args: Any, **options: Any) -> FusionDefinition:
            definition = create(*args, **options)
            if not hasattr(definition, "fec"):
                definition.fec = self.cache.cache_compile(definition.fusion)
            return definition

        made: Any = wrapper
        made.stats, made.num_fusions = self.cache.stats, self.cache.num_fusions
        return made


class FusionCache:
    """All distinct definitions of the process, numbered in order of creation."""

    _one: ClassVar[FusionCache | None] = None

    def __init__(self) -> None:
        """Start empty."""
        self._numbers: dict[str, int] = {}

    @classmethod
    def get(cls, max_fusions: int = 8192, *_: Any) -> FusionCache:
        """Return the cache of the process."""
        if FusionCache._one is None:
            FusionCache._one = FusionCache()
        return FusionCache._one

    @classmethod
    def reset(cls) -> None:
        """Remove all definitions."""
        FusionCache._one = None

    def add(self, definition: FusionDefinition) -> None:
        """Number a definition, unless an equal one has a number."""
        self._numbers.setdefault(Fusion(definition).key, len(self._numbers))

    def number_of(self, definition: FusionDefinition) -> int | None:
        """Return the number of a definition, None if it is incomplete."""
        return self._numbers.get(Fusion(definition).key)

    def lines_of(self, number: int) -> list[str]:
        """Return the calls of the definition with a number."""
        for key, known in self._numbers.items():
            if known == number:
                return key.split("\n")
        with placed():
            raise FusecError(f"no definition has the number {number}")

    def num_fusions(self) -> int:
        """Return the number of known definitions."""
        return len(self._numbers)

    def serialize(self, path: str) -> None:
        """Write the definitions' texts."""
        Path(path).write_text(json.dumps(list(self._numbers)), encoding="utf-8")

    def deserialize(self, path: str) -> None:
        """Restore the definitions of a file."""
        texts = read_json(path, "a file of serialized definitions")
        with decoding(not_a(path, "a file of serialized definitions")):
            if not all(isinstance(text, str) for text in texts):
                raise TypeError("it contains values that are not strings")
        for text in texts:
            self._numbers.setdefault(text, len(self._numbers))
