"""Size expressions in C: the same values as here, in 64 bits where the checks let them through."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import pytest
from emitted import STRICT, compile_c

from fusec.codegen.render import environment
from fusec.emit.code import Code
from fusec.emit.expressions import FUNCTIONS, Sizes, divisors, largest_terms
from fusec.emit.scratch import places
from fusec.hostir.instructions import Allocate, Free, Instruction, Memset
from fusec.hostir.program import Buffer, HostProgram
from fusec.ir.dim import Call, Dim, ceildiv, dim, floordiv, maximum, minimum, mod, symbol
from fusec.ir.dtype import F32

NAMES = ("B", "H", "K", "x.stride0")
FIELDS = {name: name.replace(".", "_") for name in NAMES}


def drawn(generator: random.Random, depth: int) -> Dim:
    """Return a random size expression."""
    if depth == 0 or generator.random() < 0.2:
        number = dim(generator.choice((-7, -1, 0, 1, 2, 3, 128, 2**33)))
        return generator.choice((number, *(symbol(n, extent=False) for n in NAMES)))
    left, right = drawn(generator, depth - 1), drawn(generator, depth - 1)
    kinds = (Dim.__add__, Dim.__sub__, Dim.__mul__, minimum, maximum, floordiv, ceildiv, mod)
    return generator.choice(kinds)(left, right)


def test_expressions_have_the_same_values_in_c(tmp_path: Path) -> None:
    generator = random.Random(0)
    dims = [drawn(generator, 4) for _ in range(150)]
    called = {a.function for d in dims for a in d.atoms() if isinstance(a, Call)}
    assert called == FUNCTIONS.keys()
    printer = Sizes({name: Code(field) for name, field in FIELDS.items()})
    parameters = ", ".join(f"int64_t {f}" for f in FIELDS.values())
    unused = " ".join(f"(void){f};" for f in FIELDS.values())
    lines = [
        f"int64_t e{k}({parameters}) {{ {unused} return {printer.text(d)}; }}"
        for k, d in enumerate(dims)
    ]

    class View:
        helpers = frozenset(printer.called)

    helpers = environment().get_template("c/arithmetic.j2").render(k=View())
    source, library = tmp_path / "e.c", tmp_path / "e.so"
    source.write_text("\n".join(["#include <stdint.h>", helpers, *lines]))
    declared = ("-Wno-overflow", "-Wno-div-by-zero")
    compile_c("-std=c11", *STRICT, *declared, "-shared", source, "-o", library)
    loaded = ctypes.CDLL(str(library))
    compared = 0
    for number, value in enumerate(dims):
        function = getattr(loaded, f"e{number}")
        function.restype = ctypes.c_int64
        for _ in range(20):
            sizes = {n: generator.choice((-9, -1, 0, 1, 2, 5, 64, 1000, 2**20)) for n in NAMES}
            if any(d.evaluate(sizes) == 0 for d in _divisors(value, sizes)) or not fits(
                [value], sizes
            ):
                continue
            found = function(*(ctypes.c_int64(sizes[n]) for n in NAMES))
            assert found == value.evaluate(sizes), (value, sizes)
            compared += 1
    assert compared > 1500


def _divisors(value: Dim, sizes: dict[str, int]) -> list[Dim]:
    """Return what is divided by, up to the first that is 0: later ones may not be computed."""
    found: list[Dim] = []
    for each in divisors([value]):
        found.append(each)
        if each.evaluate(sizes) == 0:
            break
    return found


def fits(values: list[Dim], sizes: dict[str, int]) -> bool:
    """Return whether the checks of products let sizes through."""
    for product, factor in largest_terms(values, {}):
        total = factor
        ((atoms, _),) = product.terms
        for atom in atoms:
            total *= max(1, abs(sizes[str(atom)]))
        if total > 2**62:
            return False
    return True


def test_what_the_checks_let_through_fits_64_bits() -> None:
    generator = random.Random(1)
    let = 0
    for _ in range(1500):
        value = drawn(generator, 3)
        sizes = {n: generator.choice((0, 1, 2**10, 2**31, 2**40, 2**61)) for n in NAMES}
        if any(d.evaluate(sizes) == 0 for d in _divisors(value, sizes)):
            continue
        if fits([value], sizes):
            let += 1
            assert _largest(value, sizes) < 2**63, (value, sizes)
    assert let > 250


def test_symbols_of_a_run_count_as_what_they_do_not_exceed() -> None:
    index, place = (symbol(n, extent=False) for n in ("loop0.index", "tp.place"))
    bounds = {"loop0.index": H, "tp.place": dim(4)}
    for own, bound in ((index * B, H * B), (mod(B - index, 8) * B, mod(B + H, 8) * B)):
        assert largest_terms([own * 3], bounds) == largest_terms([bound * 3], {})
    assert largest_terms([place * B], bounds) == ((B, 4),)


def _largest(value: Dim, sizes: dict[str, int]) -> int:
    """Return the largest magnitude of what is computed on the way to a value."""
    most, total = 0, 0
    for monomial, coefficient in value.terms:
        product = 1
        for atom in monomial:
            if isinstance(atom, Call):
                most = max(most, _largest(atom.left, sizes), _largest(atom.right, sizes))
            product *= Dim((((atom,), 1),)).evaluate(sizes)
            most = max(most, abs(product))
        total += product * coefficient
        most = max(most, abs(product * coefficient), abs(total))
    return most


B, H = symbol("B"), symbol("H")


def memory_of(*steps: tuple[str, Dim] | str, once: tuple[str, ...] = ()) -> list[list[str]]:
    """Return what shares memory where buffers of so many floats are allocated, or freed again."""
    instructions: list[Instruction] = [Memset(name, once=True) for name in once]
    buffers: list[Buffer] = []
    for step in steps:
        if isinstance(step, str):
            instructions.append(Free(step))
            continue
        buffers.append(Buffer(step[0], "temporary", F32, (step[1],), (dim(1),)))
        instructions.append(Allocate(step[0]))
    program = HostProgram("p", tuple(buffers), (), tuple(instructions), ())
    found = places(program)
    sizes = dict(step for step in steps if isinstance(step, tuple))
    assert all(p.bytes == 4 * sizes[p.buffers[0]] for p in found)
    return [p.buffers for p in found]


@pytest.mark.parametrize(
    ("steps", "once", "expected"),
    [
        ((("a", B), ("b", B), "a", ("c", B)), (), [["a", "c"], ["b"]]),
        ((("a", B), "a", ("b", B * 2)), (), [["a"], ["b"]]),
        ((("a", B * 2), "a", ("b", B), ("c", B)), (), [["a", "b"], ["c"]]),
        ((("a", B), "a", ("b", H)), (), [["a"], ["b"]]),
        ((("a", B), ("z", H)), ("z",), [["z"], ["a"]]),
        ((("a", B), "a", ("z", B)), ("z",), [["z"], ["a"]]),
    ],
)
def test_freed_memory_is_used_again(
    steps: tuple[tuple[str, Dim] | str, ...], once: tuple[str, ...], expected: list[list[str]]
) -> None:
    assert memory_of(*steps, once=once) == expected
