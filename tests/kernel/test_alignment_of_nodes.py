"""What accesses require of pointers, whatever the parameters are called."""

from __future__ import annotations

import pytest

from fusec import driver
from fusec.kernel.alignment import alignments
from fusec.kernel.nodes import (
    INT,
    Anywhere,
    Assign,
    Binary,
    Call,
    Constexpr,
    Declare,
    Element,
    Evaluate,
    Integer,
    Name,
    Node,
    Pointer,
    Type,
    Unary,
    call,
    vector_of,
)
from fusec.options import CompileOptions
from fusec.parse import read_text

X, AT = Name("x"), Name("at")
F16 = Type("fusec::f16")


def required(*nodes: Node) -> int:
    """Return the alignment of `x`, of 2 bytes an element."""
    return alignments({"x": 2}, nodes)["x"]


def test_elements_and_vectors() -> None:
    element, pointer = Element(X, AT), Pointer(X, AT)
    wide = Constexpr(INT, "kVec", Integer(4))
    assert required(Assign(Name("y"), element)) == 2
    assert required(call("fusec::load", pointer, about=[8])) == 16
    assert required(wide, call("fusec::load", pointer, about=["kVec"])) == 8
    assert required(call("fusec::load_streaming", Unary("&", element))) == 2
    assert required(call("fusec::load", Unary("&", element), about=[8])) == 16
    assert required(Anywhere(pointer)) == 2
    assert required(call("fusec::load_across", pointer, about=[8])) == 2


def test_stores_are_of_the_vector_that_is_stored() -> None:
    store = Evaluate(call("fusec::store", Pointer(X, AT), "v"))
    assert required(Declare(vector_of(F16, 4), "v"), store) == 8
    assert required(store) == 16, "a vector that is not declared"


@pytest.mark.parametrize(
    "use",
    [
        Evaluate(call("fusec::bulk_load", Unary("&", Element(X, AT)))),
        Call("reinterpret_cast", (Unary("&", Element(X, AT)),), (Type("float4*"),)),
        Assign(Name("p"), Pointer(X, AT)),
        Binary("+", X, AT),
        X,
        call("fusec::load_tile_rows", "tile", Pointer(X, AT), "count"),
        call("fusec::load", Pointer(X, AT), about=["kUnknown"]),
    ],
)
def test_any_other_use_requires_the_widest(use: Node) -> None:
    assert required(use) == 16


def test_a_name_that_is_declared_twice_has_no_width() -> None:
    load = call("fusec::load", Pointer(X, AT), about=["kVec"])
    twice = [Constexpr(INT, "kVec", Integer(n)) for n in (1, 2)]
    assert required(*twice, load) == 16
    vectors = [Declare(vector_of(F16, n), "v") for n in (1, 2)]
    assert required(*vectors, Evaluate(call("fusec::store", Pointer(X, AT), "v"))) == 16


GEMM = """fusion: product
inputs: {%s: "bf16[64, 256]", %s: "bf16[256, 128]"}
ops:
  - y = matmul(%s, %s)
outputs: [y]
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("names", [("a", "b"), ("sums", "tile"), ("max", "row"), ("M", "K")])
def test_names_that_kernels_use_themselves_have_the_same_alignment(
    names: tuple[str, str], target: str
) -> None:
    fusion = read_text(GEMM % (*names, *names), "product.yaml")
    host = driver.plan(fusion, CompileOptions(targets=(target,))).host
    assert {host.buffer[name].alignment for name in names} == {16}


def test_what_a_comment_quotes_is_no_use() -> None:
    text = """fusion: turned
doc: x
inputs: {x: "f32[7, 5]"}
ops:
  - y = mul(permute(x, [1, 0]), 2.0)
outputs: [y]
"""
    host = driver.plan(read_text(text, "x"), CompileOptions(targets=("sm_90a",))).host
    assert host.buffer["x"].alignment == 4
