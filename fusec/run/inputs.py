"""Random inputs with the declared layouts, and the sizes of given inputs, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np

from fusec.diagnostics import FusecError
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, Sizes
from fusec.ir.graph import Fusion, Input
from fusec.ops.limits import check_extrema, check_layouts, check_reshapes
from fusec.run.arrays import StridedArray, span
from fusec.run.binding import check_facts, choose_strides, generator_state, read_sizes
from fusec.run.contents import Ends, Numbers, contents_of
from fusec.run.index_inputs import group_ends
from fusec.run.integers import InputRange, choose, draw, whole_contents


def choose_sizes(fusion: Fusion, given: Sizes | None = None) -> dict[str, int]:
    """Return the size of every symbol: given, or default, and with padded run-time strides."""
    sizes = dict(fusion.hints)
    for name, size in (given or {}).items():
        if name not in sizes:
            known = ", ".join(n for n in sizes if "." not in n)
            raise FusecError(f"fusion `{fusion.name}` has no dim `{name}`", help=f"one of {known}")
        sizes[name] = size
    check_facts(fusion, sizes)
    for entry in fusion.inputs:
        choose_strides(entry, sizes, set(given or {}))
    check_layouts(fusion, sizes)
    check_extrema(fusion, sizes)
    check_reshapes(fusion, sizes)
    return sizes


def random_inputs(
    fusion: Fusion, sizes: Sizes, seed: int = 0, kind: str = "reals"
) -> dict[str, Any]:
    """Return random inputs: StridedArrays for tensors, plain numbers for scalars.

    kind: `reals`, or `integers` small enough for sums and products to be exact in any order.
    """
    input_range = choose(fusion, sizes).input_range if kind == "integers" else None
    return {i.value.name: random_input(fusion, i, sizes, seed, input_range) for i in fusion.inputs}


def random_input(
    fusion: Fusion, entry: Input, sizes: Sizes, seed: int, input_range: InputRange | None = None
) -> Any:
    """Return one random input, generated from `input_range` if it is given.

    It depends on its name and the seed, not on the other inputs.
    """
    value = entry.value
    if entry.generator:
        return generator_state(entry, (seed, 0))
    if value.is_scalar:
        find = contents_of if input_range is None else whole_contents
        contents = find(fusion, entry, sizes)
        assert isinstance(contents, Numbers)
        return _scalar(entry, sizes, _generator(entry, seed), contents, input_range)
    shape = tuple(d.evaluate(sizes) for d in value.shape)
    strides = tuple(s.evaluate(sizes) for s in entry.strides)
    storage = random_elements(fusion, entry, sizes, span(shape, strides), seed, input_range)
    return StridedArray(storage, shape, strides)


def random_elements(
    fusion: Fusion,
    entry: Input,
    sizes: Sizes,
    count: int,
    seed: int,
    input_range: InputRange | None = None,
) -> Array:
    """Return `count` random elements of a tensor input, contiguous in memory."""
    find = contents_of if input_range is None else whole_contents
    contents = find(fusion, entry, sizes)
    if isinstance(contents, Ends):
        return group_ends(_generator(entry, seed), count, contents.end, entry.value.dtype.numpy)
    return _draw(_generator(entry, seed), count, entry.value.dtype, contents, input_range)


def _generator(entry: Input, seed: int) -> Any:
    entropy = np.random.SeedSequence([seed, crc32(entry.value.name.encode())])
    return np.random.Generator(np.random.PCG64(entropy))


def _scalar(
    entry: Input, sizes: Sizes, generator: Any, contents: Numbers, input_range: InputRange | None
) -> Any:
    dtype, name = entry.value.dtype, entry.value.name
    if dtype.is_integer and entry.value.dim is not None and name in sizes:
        return sizes[name]
    if entry.default is not None:
        return entry.default
    drawn = _draw(generator, 1, dtype, contents, input_range)[0]
    return drawn.item() if dtype.kind in ("bool", "int", "uint", "complex") else float(drawn)


def _draw(
    generator: Any, count: int, dtype: DType, contents: Numbers, input_range: InputRange | None
) -> Array:
    low, high = contents.low, contents.high
    if dtype.kind == "bool":
        return generator.integers(0, 2, count, dtype=np.uint8).astype(np.bool_)
    if dtype.is_complex:
        return _draw(generator, 2 * count, dtype.part, contents, input_range).view(dtype.numpy)
    if input_range is not None and not contents.positions:
        return draw(contents, input_range, generator, count, dtype)
    if dtype.is_integer:
        return _draw_integers(generator, count, dtype, low, high, zeros=contents.explicit)
    wide = np.float64 if dtype.name == "f64" else np.float32
    drawn = generator.random(count, dtype=wide) * wide(high - low) + wide(low)
    values = drawn.astype(dtype.numpy)
    if not contents.explicit:
        # Zeros hide errors: a product with 0 is correct for any other factor.
        values[values == 0] = wide(high if high else low)
    return values


def _draw_integers(
    generator: Any, count: int, dtype: DType, low: float, high: float, *, zeros: bool
) -> Array:
    facts = np.iinfo(dtype.numpy)
    least = max(int(np.ceil(low)), int(facts.min))
    most = max(min(int(np.floor(high)), int(facts.max)), least)
    drawn = generator.integers(least, most, count, dtype=dtype.numpy, endpoint=True)
    if not zeros and (least, most) != (0, 0):
        drawn[drawn == 0] = most if most else least
    return drawn


def bind_sizes(fusion: Fusion, arrays: Mapping[str, Any]) -> dict[str, int]:
    """Return the size of every symbol, from the shapes and strides of `arrays` and from scalars.

    Sizes that these do not determine (two symbols that only occur as a product) take their
    defaults. FusecError names the input and dim that is missing, disagrees or breaks a declared
    fact.
    """
    sizes = read_sizes(fusion, arrays)
    check_layouts(fusion, sizes)
    check_extrema(fusion, sizes)
    check_reshapes(fusion, sizes)
    return sizes
