"""Random annotated programs: each is verified on its ranks, or rejected by a rule with a place."""

from __future__ import annotations

import random
from collections import Counter
from math import inf

import numpy as np
import pytest
from annotated import Drawn, draw, repeated
from annotated_trials import Outcome, trial, try_many
from draws import drawn, times
from hypothesis import assume, given
from hypothesis import strategies as st
from lockstep import agree, divided, exchanges_of, mesh_of, ops_of
from loop_scripts import STREAM
from nightly import mostly_nightly
from rank_threads import over_sockets

from fusec.diagnostics import FusecError, Unsupported
from fusec.driver import Compilation
from fusec.hostir import loops
from fusec.hostir.instructions import Copy, For
from fusec.ir.dim import dim
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.nvfuser.definition import DirectDefinition
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.distributed.loss import RankFailure
from fusec.shard import aligned
from fusec.shard import partition as partitions
from fusec.shard.partition import partition, partitioned


def statuses(found: Counter[tuple[str, str]]) -> Counter[str]:
    counts = Counter[str]()
    for (status, _), number in found.items():
        counts[status] += number
    return counts


def check(seed: int, count: int, seconds: float) -> None:
    """Try programs, up to some seconds: none fails, and some are verified."""
    found = try_many(seed, 0, count, seconds, None)
    failed = {why: n for (status, why), n in found.items() if status == "failed"}
    assert failed == {}
    assert statuses(found)["verified"] > 0


def test_random_annotated_programs() -> None:
    check(41, times(8), inf)


@pytest.mark.nightly
def test_more_random_annotated_programs() -> None:
    check(42, 10_000, 30.0)


# -- that the trials see mistakes


def outcomes(numbers: range) -> Counter[str]:
    found = (trial(draw(41, number), number) for number in numbers)
    return Counter(o.status if o.status != "failed" else o.why for o in found)


def test_parts_of_wrong_ranks_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank takes the first part."""
    sliced = next(n for n in range(100) if "rank_slice" in local_ops(n))
    assert trial(draw(41, sliced), sliced).status == "verified"
    monkeypatch.setattr(loops, "place_of", lambda axis: dim(0))
    assert trial(draw(41, sliced), sliced).why in ("mismatch", "copies")


def local_ops(number: int) -> list[str]:
    program = draw(41, number)
    if program.script or program.fusion.mesh is None or program.fusion.mesh.size < 2:
        return []
    try:
        return exchanges_of(partition(program.fusion))
    except FusecError:
        return []


def test_an_error_without_a_place_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fusion: Fusion) -> None:
        raise Unsupported("nothing is divided today")

    monkeypatch.setattr(partitions, "with_shares", fail)
    found = outcomes(range(6))
    assert found["no place: nothing is divided today"] >= 2


def test_a_rank_that_fails_ends_the_others() -> None:
    def run(rank: int, transport: object) -> int:
        if rank == 1:
            raise ValueError("rank 1")
        transport._links.receive(1, "never", "waiting")  # type: ignore[attr-defined]
        return rank

    with pytest.raises((ValueError, RankFailure)) as caught:
        over_sockets(3, run)
    assert "rank 1" in str(caught.value)


def test_programs_are_the_same_in_every_run() -> None:
    first, again = draw(5, 3), draw(5, 3)
    assert to_text(first.fusion) == to_text(again.fusion)
    assert first.script == again.script


# -- what was found


def read(text: str) -> Fusion:
    return read_text(f"fusion: f\n{text}", "f.yaml")


def verified(fusion: Fusion) -> None:
    program = Drawn(fusion, without=("loops_by_cost",))
    assert trial(program) == Outcome("verified")


def test_a_list_of_all_ranks_says_nothing() -> None:
    text = """
mesh: [2]
inputs: {x: {type: "f32[4, 6]", shard: {0: mesh}, ranks: [1, 0]}}
ops:
  - y = neg(x)
outputs: [y]
"""
    fusion = read(text)
    assert read_text(to_text(fusion)) == fusion
    plain = read(text.replace(", ranks: [1, 0]", ""))
    assert list(map(repr, agree(fusion).nodes)) == list(map(repr, agree(plain).nodes))
    verified(fusion)


COLUMNS = """
inputs: {a: "f32[5, 7]", w: "f32[7, 6]"}
ops:
  - y = matmul(a, w)
outputs:
  - y: {stream: {1: 3}}
"""


def test_slices_that_gemms_cannot_read_where_they_lie_are_copied() -> None:
    """As those of nvFuser's test_stream: two columns of 4 bytes each."""
    program = Compilation(read(COLUMNS), CompileOptions(jobs=1))
    assert trial(Drawn(read(COLUMNS)), plans=True) == Outcome("verified")
    (loop,) = (i for i in program.host.instructions if isinstance(i, For) and i.streams)
    assert [i.target for i in loop.body if isinstance(i, Copy)] == ["w_slice", "y_slice.part"]


def test_a_part_that_kernels_cannot_read_is_rejected_at_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aligned, "with_aligned_parts", lambda fusion: fusion)
    found = trial(Drawn(read(COLUMNS)), plans=True)
    assert found.status == "rejected"
    assert "--> drawn.yaml" in found.message
    assert "matmul(a, " in found.message
    assert "of at least 16 bytes" in found.message


def test_a_dim_is_divided_by_a_sum() -> None:
    """As what an inner split of a concatenation leaves whole."""
    text = """
mesh: [2]
dims: {A: 24}
inputs: {x: "f32[A]", z: "f32[12]"}
ops:
  - y = cat([z, x, x], dim=0)
outputs: [y]
shardings: {y: {shard: {0: [{whole: A + 6}, mesh]}}}
"""
    agree(read(text))


def test_blocks_of_what_shares_memory_have_memory_of_their_own() -> None:
    text = """
mesh: [4]
inputs: {x: {type: "f32[48, 16]", strides: [1, 1], shard: {0: [{whole: 2}, mesh]}}}
ops:
  - y = neg(x)
outputs: [y]
"""
    verified(read(text))
    assert partition(read(text)).inputs[0].strides == (dim(16), dim(1))
    plain = partition(read(text.replace("[{whole: 2}, mesh]", "mesh")))
    assert plain.inputs[0].strides == (dim(1), dim(1))


REPEATED = """
mesh: [2]
inputs: {x: {type: "f32[4, 6]", shard: {1: mesh}}}
ops:
  - y = broadcast_in_dim(x, [5, 4, 6], [1, 2])
  - z = cumsum(y, dim=2)
outputs: [z]
shardings: {y: {shard: {}}}
"""


def test_what_is_repeated_is_exchanged_before() -> None:
    """All of `y` is needed: the smaller `x` is gathered."""
    local = agree(read(REPEATED))
    assert ops_of(local).index("all_gather") < ops_of(local).index("broadcast_in_dim")
    unsaid = agree(read(REPEATED.replace("shardings: {y: {shard: {}}}", "")))
    assert ops_of(unsaid) == ops_of(local)


DEFERRED = """
inputs: {x: {type: "f32[257, 8]", stream: {0: 3}}, b: "f32[8]"}
ops:
  - c = broadcast_in_dim(b, [257, 8], [1])
  - y = add(x, c)
outputs: [y]
"""


def test_saying_what_is_inferred_of_repeated_elements() -> None:
    """They are made in the loop that reads them, and no larger than a slice."""
    fusion = read(DEFERRED)
    (again,) = (more for name, more in repeated(fusion, random.Random(0), 9) if name == "c")
    assert ops_of(agree(again)) == ops_of(agree(fusion))
    assert all(v.shape[0] != dim(257) for n in agree(again).nodes[:-1] for v in n.outputs)


FOLLOWED = """
dims: {A: 4}
inputs: {x: "f32[A, A]", z: "f32[A, A, A]"}
ops:
  - c = cast(z, f64)
  - b = broadcast_in_dim(x, [A, A, A], [1, 2])
  - y = minimum(b, c)
outputs: [y]
shardings: {b: {stream: {1: A}}}
"""
RESHAPED = """
inputs: {x: "f32[15, 48]", w: "f32[15, 48]"}
ops:
  - m = mul(x, w)
  - a = add(m, w)
  - y = reshape(a, [15, 24, 2])
outputs: [y]
shardings: {m: {shard: {1: [{whole: 24}, {stream: 2}]}}}
"""


@pytest.mark.parametrize("text", [FOLLOWED, RESHAPED])
def test_slices_that_are_followed_are_the_same_where_they_are_said(text: str) -> None:
    fusion = read(text)
    local = agree(fusion)
    assert exchanges_of(local)[-1] == "stream_stack"
    for name, again in repeated(fusion, random.Random(0), 9):
        assert ops_of(agree(again)) == ops_of(local), name


ON_ONE = """
mesh: [2]
inputs: {x: {type: "f32[4]", ranks: [1]}}
ops:
  - y = neg(x)
  - z = exp(y)
outputs: [z]
"""


def test_what_runs_on_some_ranks_is_inferred_so() -> None:
    fusion = read(ON_ONE)
    assert partitioned(fusion).values["y"].ranks == (1,)
    for _, again in repeated(fusion, random.Random(0), 9):
        assert ops_of(partition(again)) == ops_of(partition(fusion))


def test_exchanges_keep_the_order_of_the_program() -> None:
    """Whatever order streams allow: one rank's sends are what another one receives in turn."""
    verified(
        read(
            """
mesh: {b: 2, c: 2}
inputs: {x: {type: "f32[32, 8]", shard: {0: b, 1: c}}}
ops:
  - y = permute(x, [1, 0])
outputs:
  - y: {shard: {0: [b, c]}, stream: {1: 32}}
"""
        )
    )


# -- slices of several dims, and of blocks of one


SUMS = """
inputs: {x: "f32[8, 12, 3]", b: "f32[12, 3]", w: "f32[3, 4]"}
ops:
  - y = add(x, b)
  - p = matmul(y, w)
  - s = sum(y, dims=[1])
  - t = exp(permute(y, [2, 1, 0]))
outputs: [p, s, y, t]
"""
SAID = (
    {"y": "0:stream/4, 1:stream/2"},
    {"y": "0:stream/8, 1:stream/2"},
    {"y": "0:_/2 stream/2, 1:stream/3"},
    {"y": "0:_/2 stream/4"},
    {"y": "0:stream/2, 2:stream/3"},
    {"p": "0:stream/2, 1:stream/3, 2:stream/2"},
    {"p": "1:_/3 stream/2, 2:_/2 stream/2"},
    {"x": "0:stream/2, 1:stream/2"},
    {"b": "0:stream/2, 1:stream/3", "y": "1:stream/2, 2:stream/3"},
    {"y": "0:stream/4, 1:stream/2", "p": "0:stream/2, 1:stream/4"},
)


@pytest.mark.parametrize("said", mostly_nightly(SAID, 3), ids=str)
def test_slices_of_several_dims(said: dict[str, str]) -> None:
    fusion = divided(read(SUMS), None, **{n: t.replace(", ", ",") for n, t in said.items()})
    local = agree(fusion)
    assert "stream_slice" in exchanges_of(local)
    assert "stream_stack" in exchanges_of(local)
    verified(fusion)


ON_RANKS = (
    {"y": "0:mesh stream/2,1:stream/3"},
    {"y": "0:stream/2,1:mesh stream/3", "s": "0:mesh"},
    {"y": "0:_/2 stream/2 mesh"},
    {"x": "0:mesh", "y": "0:_/2 stream/2"},
    {"x": "0:_/2 mesh", "y": "0:_/2 stream/2"},
    {"x": "0:_/2 mesh", "y": "0:_/2 stream/4"},
    {"y": "1:stream/2,2:stream/3", "p": "1:stream/2,2:stream/4", "x": "1:mesh"},
)


@pytest.mark.parametrize("said", mostly_nightly(ON_RANKS, 3), ids=str)
def test_slices_of_several_dims_on_two_ranks(said: dict[str, str]) -> None:
    mesh = mesh_of(mesh=2)
    fusion = divided(read(SUMS), mesh, **said)
    agree(fusion)
    verified(fusion)


def test_slices_of_symbols_are_multiples() -> None:
    text = "dims: {A: 8, B: 12}\n" + SUMS.replace("8, 12, 3", "A, B, 3").replace("12, 3", "B, 3")
    fusion = divided(read(text), None, y="0:_/2 stream/2,1:stream/3")
    verified(fusion)
    with pytest.raises(FusecError, match="is not divisible into 4 equal parts"):
        partition(divided(read(text.replace("A: 8", "A: 6")), None, y="0:_/2 stream/2"))


@st.composite
def merged_loops(draw: st.DrawFn) -> tuple[list[tuple[str, tuple[int, ...]]], int]:
    """Return transforms of a loop domain of three dims, and which axis is on streams."""
    sizes, calls = [4, 6, 2], list[tuple[str, tuple[int, ...]]]()
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["merge", "merge", "outer_split", "inner_split", "reorder"]))
        at = draw(st.integers(0, len(sizes) - 1))
        if kind == "merge" and len(sizes) > 1:
            other = draw(st.sampled_from([k for k in range(len(sizes)) if k != at]))
            calls.append((kind, (at, other)))
            sizes[at] *= sizes[other]
            del sizes[other]
        elif kind == "reorder":
            to = draw(st.integers(0, len(sizes) - 1))
            calls.append((kind, (at, to)))
            sizes.insert(to, sizes.pop(at))
        elif kind != "merge":
            factor = draw(st.sampled_from([f for f in (2, 3, 4) if sizes[at] % f == 0] or [1]))
            calls.append((kind, (at, factor)))
            pair = [factor, sizes[at] // factor]
            sizes[at : at + 1] = pair if kind == "outer_split" else pair[::-1]
    return calls, draw(st.integers(0, len(sizes) - 1))


def test_slices_are_not_stacked_in_an_input() -> None:
    """The copy that writes into it stays."""
    text = """
inputs:
  x: "i32[48]"
  z: {type: "i32[48]", stream: {0: 4}}
ops:
  - a = bitwise_or(z, 1)
  - b = mod(z, a)
  - c = set(b)
  - e = erf(b)
outputs:
  - c: {alias: x}
  - e
shardings: {a: {stream: {}}}
"""
    assert trial(Drawn(read(text))) == Outcome("verified")


OF_WHOLE_INPUTS = [
    # A reader of what is computed as needed takes the division of its other operand.
    """
mesh: [4]
inputs:
  x: {type: "bf16[129, 8]", shard: {}}
  g: bf16[129, 1]
  b: {type: "bf16[8]", stream: {0: 4}}
  w: {type: "bf16[64, 8]", shard: {1: mesh}}
ops:
  - c = mul(x, g)
  - y = linear(mul(c, broadcast_in_dim(b, shape=[129, 8], broadcast_dims=[1])), w)
outputs: [y]
""",
    # What is computed of whole tensors is computed in parts, not gathered of other parts.
    """
mesh: [2]
inputs:
  x: "f32[16, 32]"
  g: {type: "f32[32]", shard: {0: mesh}}
  w: {type: "f32[32, 8]", shard: {1: mesh}}
ops:
  - c = mul(x, broadcast_in_dim(g, shape=[16, 32], broadcast_dims=[1]))
  - y = matmul(c, w)
outputs:
  - y: {shard: {0: [{whole: 8}, {stream: 2}], 1: mesh}}
""",
]


@pytest.mark.parametrize("text", OF_WHOLE_INPUTS)
def test_what_is_computed_as_needed_may_be_said_to_be(text: str) -> None:
    fusion = read(text)
    agree(fusion, exact=False)
    wanted = to_text(partition(fusion))
    found = dict(repeated(fusion, random.Random(0), 9))
    assert "c" in found
    for again in found.values():
        assert to_text(partition(again)) == wanted


@drawn(12)
@given(given=merged_loops())
def test_an_axis_merged_of_several_dims_on_streams(
    given: tuple[list[tuple[str, tuple[int, ...]]], int],
) -> None:
    calls, at = given
    with DirectDefinition() as fd:
        x, b = (fd.define_tensor(s, contiguity=True) for s in ([4, 6, 2], [6, 2]))
        y = fd.ops.add(x, fd.ops.broadcast_in_dim(b, [4, 6, 2], [1, 2]))
        fd.add_output(fd.ops.exp(y))
        fd.add_output(fd.ops.sum(y, [0]))
        try:
            for name, numbers in calls:
                if name == "reorder":
                    y.reorder({numbers[0]: numbers[1]})
                else:
                    getattr(y, name)(*numbers)
        except (Unsupported, FusecError):
            assume(False)
        y.axis(at).parallelize(STREAM)
    try:
        graph = fd.graph()
    except Unsupported:
        assume(False)
        raise
    agree(graph, exact=False)


def test_a_merged_axis_runs() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor([-1, -1, 3], contiguity=True)
        y = fd.ops.relu(x)
        fd.add_output(y)
        y.merge(0)
        y.axis(0).parallelize(STREAM)
    given = np.arange(-30, 30, dtype=np.float32).reshape(4, 5, 3)
    (found,) = fd.execute([given])
    np.testing.assert_array_equal(found, np.maximum(given, 0))
    assert ops_of(partition(fd.graph()))[:2] == ["stream_slice", "stream_slice"]
