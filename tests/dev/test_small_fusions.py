"""Small fusions that once went wrong on the way through all stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulated import can_run, emulated
from gpu_check import check_on_gpu
from nightly import mostly_nightly

from fusec import driver
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse.dsl import DataType, FusionDefinition
from fusec.reference.verdict import compare
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs

FLOAT, HALF, INT, INT32 = DataType.Float, DataType.BFloat16, DataType.Int, DataType.Int32
WHOLE = tuple(
    DataType[name] for name in ("Char", "Byte", "Short", "Int32", "UInt32", "Int", "UInt64")
)
CASES: dict[str, Callable[[FusionDefinition], None]] = {}


def case(define: Callable[[FusionDefinition], None]) -> Callable[[FusionDefinition], None]:
    CASES[define.__name__] = define
    return define


def tensor(fd: FusionDefinition, shape: list[int], dtype: DataType = FLOAT, **more: Any) -> Any:
    return fd.define_tensor(shape=shape, contiguity=True, dtype=dtype, **more)


@case
def transposed_beside_one_value_a_line(fd: FusionDefinition) -> None:
    """The bias runs along the lines of the tile, too, but is the same for all its columns."""
    x = tensor(fd, [64, 96], HALF, stride_order=[0, 1])
    bias = tensor(fd, [64], HALF)
    fd.add_output(fd.ops.add(x, fd.ops.broadcast_in_dim(bias, [64, 96], [0])))


@case
def outputs_beside_an_empty_one(fd: FusionDefinition) -> None:
    """One output has elements, the domain of the other has none to iterate over."""
    x = tensor(fd, [3, 0])
    total = fd.ops.sum(x, [1], True)
    fd.add_output(fd.ops.sub(x, total))
    fd.add_output(fd.ops.add(total, 1.0))


@case
def a_number_beside_an_empty_cut(fd: FusionDefinition) -> None:
    """The number is broadcast to what is cut from x: nothing, while x has elements."""
    x, y = tensor(fd, [24, 24]), tensor(fd, [])
    number = fd.ops.neg(y)
    cut = fd.ops.slice(x, [0, 0], [24, 0], [1, 1])
    fd.add_output(fd.ops.add(cut, fd.ops.broadcast_in_dim(number, [24, 0], [])))
    fd.add_output(number)


@case
def nothing_reduced_beside_elements(fd: FusionDefinition) -> None:
    """No turn of a loop over nothing writes the sum of the other, which is broadcast to it."""
    x, y = tensor(fd, [3, 0]), tensor(fd, [3, 1])
    fd.add_output(fd.ops.sum(fd.ops.sub(x, y), [0, 1]))
    fd.add_output(fd.ops.add(y, 1.0))


@case
def written_across_what_is_read(fd: FusionDefinition) -> None:
    """What is written into x comes from y alone, and the other way round."""
    x, y = tensor(fd, [24, 24]), tensor(fd, [24, 24])
    fd.add_output(fd.ops.sub(y, x))
    fd.add_output(fd.ops.permute(y, [1, 0]), x)


@case
def written_at_another_row_than_read(fd: FusionDefinition) -> None:
    """Rows of the one half read x once, for `g`; rows of the other overwrite it, once."""
    x, y, w = (tensor(fd, [24]) for _ in range(3))
    upper = fd.ops.add(tensor(fd, [32, 24]), fd.ops.broadcast_in_dim(y, [32, 24], [1]))
    lower = fd.ops.broadcast_in_dim(w, [8, 24], [1])
    fd.add_output(fd.ops.add(w, fd.ops.add(x, 1.0)))
    fd.add_output(fd.ops.cat([upper, lower], 0))
    fd.add_output(fd.ops.mul(y, 2.0), x)


def written_in_every_row(fd: FusionDefinition, dim: int) -> None:
    """Rows that a reduction keeps apart write the same over what others of them read."""
    x, y, w = (tensor(fd, [1, 24]) for _ in range(3))
    z = tensor(fd, [128, 24])
    product = fd.ops.mul(fd.ops.exp(z), y)
    fd.add_output(fd.ops.sum(fd.ops.mul(product, w), [dim]))
    fd.add_output(product)
    fd.add_output(fd.ops.add(x, w))
    fd.add_output(fd.ops.mul(y, 2.0), x)


@case
def written_in_every_row_of_sums(fd: FusionDefinition) -> None:
    written_in_every_row(fd, 1)


@case
def written_in_every_column_of_sums(fd: FusionDefinition) -> None:
    written_in_every_row(fd, 0)


@case
def written_in_every_row_of_norms(fd: FusionDefinition) -> None:
    x, y, w = (tensor(fd, [1, 24]) for _ in range(3))
    z = tensor(fd, [128, 24])
    power = fd.ops.exp(fd.ops.sub(z, fd.ops.max(z, [1], True)))
    fd.add_output(fd.ops.mul(power, y))
    fd.add_output(fd.ops.mul(power, w))
    fd.add_output(fd.ops.add(x, w))
    fd.add_output(fd.ops.mul(y, 2.0), x)


@case
def written_in_every_row_of_products(fd: FusionDefinition) -> None:
    x, y, w = (tensor(fd, [1, 64]) for _ in range(3))
    product = fd.ops.matmul(tensor(fd, [64, 32]), tensor(fd, [32, 64]))
    fd.add_output(fd.ops.mul(product, y))
    fd.add_output(fd.ops.mul(product, w))
    fd.add_output(fd.ops.add(x, w))
    fd.add_output(fd.ops.mul(y, 2.0), x)


def written_between_reductions(fd: FusionDefinition, dim: int, across: bool) -> None:
    """What comes between two reductions is written over what is first read after both."""
    x, z = tensor(fd, [24, 24]), tensor(fd, [24, 24])
    most = fd.ops.max(z, [dim], True)
    power = fd.ops.exp(fd.ops.sub(z, most))
    fd.add_output(fd.ops.mul(x, fd.ops.sum(power, [dim], True)))
    if across:
        fd.add_output(fd.ops.sum(power, [1 - dim]))
    fd.add_output(fd.ops.add(z, most), x)


@case
def written_between_reductions_of_rows(fd: FusionDefinition) -> None:
    written_between_reductions(fd, 1, False)


@case
def written_between_reductions_of_columns(fd: FusionDefinition) -> None:
    written_between_reductions(fd, 0, False)


@case
def written_between_reductions_of_both(fd: FusionDefinition) -> None:
    written_between_reductions(fd, 1, True)


@case
def shifts_by_the_width_and_more(fd: FusionDefinition) -> None:
    for dtype, width in ((INT, 64), (INT32, 32), (DataType.Char, 8)):
        x = tensor(fd, [16], dtype, range=(-90, 90))
        for shift in ("logical_right_shift", "bitwise_right_shift", "bitwise_left_shift"):
            for distance in (width, width + 5):
                fd.add_output(getattr(fd.ops, shift)(x, distance))


@case
def narrow_integers_that_wrap(fd: FusionDefinition) -> None:
    """C would compute them as int and halve a sum that has not wrapped."""
    for dtype in (DataType.Char, DataType.Byte, DataType.Short):
        x = tensor(fd, [16], dtype, range=(80, 120))
        fd.add_output(fd.ops.div(fd.ops.mul(x, 3), 2))
        fd.add_output(fd.ops.remainder(fd.ops.add(x, x), 7))


@case
def casts_of_what_no_integer_holds(fd: FusionDefinition) -> None:
    """Large numbers, infinities and NaNs; for doubles too."""
    for dtype in (FLOAT, DataType.Double):
        x = tensor(fd, [16], dtype, range=(-90, 90))
        large, infinite, none = fd.ops.mul(x, 2.0**56), fd.ops.div(x, 0.0), fd.ops.sqrt(x)
        for value in (x, large, fd.ops.mul(large, 2.0**30), infinite, none):
            for target in WHOLE:
                fd.add_output(fd.ops.cast(value, target))


@case
def pad_by_a_cast_of_literals(fd: FusionDefinition) -> None:
    width = fd.ops.cast(fd.ops.mul(fd.define_scalar(2.5), fd.define_scalar(3)), INT)
    fd.add_output(fd.ops.pad(tensor(fd, [2, 3]), [width, 1]))


@case
def gathered_rows_in_a_part_of_each_row(fd: FusionDefinition) -> None:
    """A vector of the table lies inside or outside the part as a whole, and so does its index."""
    table, x = tensor(fd, [50, 256], HALF), tensor(fd, [4096, 768], HALF)
    rows = tensor(fd, [4096], INT, range=(0, 49))
    fd.add_output(fd.ops.cat([fd.ops.index_select(table, rows, 0), fd.ops.neg(x)], 1))


@case
def outputs_that_are_inputs_and_views(fd: FusionDefinition) -> None:
    x = tensor(fd, [4, 6])
    y = fd.ops.exp(x)
    for output in (x, x, y, fd.ops.permute(y, [1, 0]), fd.ops.slice(x, [1, 0], [3, 6]), y):
        fd.add_output(output)


@case
def in_place_beside_a_view_of_the_old(fd: FusionDefinition) -> None:
    x = tensor(fd, [4, 6])
    fd.add_output(fd.ops.add(x, 1.0), alias_input=x)
    fd.add_output(fd.ops.permute(x, [1, 0]))
    fd.add_output(fd.ops.reshape(x, [24]))


@case
def two_inputs_that_change_places(fd: FusionDefinition) -> None:
    x, y = tensor(fd, [8]), tensor(fd, [8])
    fd.add_output(y, alias_input=x)
    fd.add_output(x, alias_input=y)


@case
def a_norm_of_gathered_rows(fd: FusionDefinition) -> None:
    table, ids = tensor(fd, [8, 64], HALF), tensor(fd, [12], INT, range=(0, 7))
    rows = fd.ops.cast(fd.ops.index_select(table, ids, 0), FLOAT)
    fd.add_output(fd.ops.rms_norm(rows, [64]))


@case
def sums_of_one_drawing_along_both_axes(fd: FusionDefinition) -> None:
    x = tensor(fd, [16, 12])
    u = fd.ops.uniform(0.0, 1.0, [16, 12], dtype=FLOAT)
    fd.add_output(fd.ops.sum(u, [1]))
    fd.add_output(fd.ops.sum(u, [0]))
    fd.add_output(fd.ops.mul(x, u))


def fusion(name: str) -> Fusion:
    with FusionDefinition(name=name) as fd:
        CASES[name](fd)
    return fd.fusion()


@pytest.mark.parametrize("name", mostly_nightly(CASES, 2))
def test_on_the_host(name: str, tmp_path: Path) -> None:
    """Kernels build for the GPU; where they are small, their text is right on the host."""
    made = fusion(name)
    compiled = driver.compile_fusion(made, CompileOptions(jobs=1))
    sizes = choose_sizes(made)
    if not can_run(compiled.program, sizes):
        return
    inputs = random_inputs(made, sizes)
    device: Any = emulated(compiled.program, tmp_path)
    cubins = {kernel: b"" for kernel, _ in compiled.artifacts}
    with Executable(device, compiled.program.host, cubins).bind(inputs, sizes) as bound:
        bound.reset()
        bound.run()
        verdict = compare(made, sizes, inputs, bound.outputs())
    assert verdict.ok, verdict.text()


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_on_the_gpu(name: str) -> None:
    check_on_gpu(fusion(name))
