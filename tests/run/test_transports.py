"""Exchanges of host memory between processes: each kind and element type against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_processes

from fusec.diagnostics import InternalError, Unsupported
from fusec.hostir.instructions import Collective, Receive, Send
from fusec.ir.dim import dim, symbol
from fusec.ir.dtype import ALL, DTYPES, DType
from fusec.ir.sharding import Mesh
from fusec.run.distributed.gathering import gather_arrays
from fusec.run.distributed.links import Links
from fusec.run.transports.host import HostTransport
from fusec.run.transports.reduction import reduce_blocks

RANKS = 3
SHAPE = (6, 5)
"""Of every rank's source; dim 0 has equal blocks for all ranks."""
REDUCTIONS = ("sum", "prod", "max", "min")
MOVING = ("all_gather", "all_to_all", "broadcast", "send")


def source_of(dtype: DType, rank: int, shape: Sequence[int] = SHAPE) -> np.ndarray:
    """Return what a rank gives: any bits of movement, numbers of arithmetic."""
    generator = np.random.default_rng(100 + rank)
    if dtype.name == "bool":
        return generator.random(shape) < 0.6
    if dtype.is_complex:
        parts = generator.standard_normal((2, *shape))
        return (parts[0] + 1j * parts[1]).astype(dtype.numpy)
    if dtype.kind == "float":
        return (generator.standard_normal(shape) + (0.5 if dtype.name == "f8e8m0" else 0)).astype(
            dtype.numpy
        )
    facts = np.iinfo(dtype.numpy)
    return generator.integers(facts.min, facts.max, shape, dtype=dtype.numpy, endpoint=True)


def legal(kind: str, dtype: DType) -> bool:
    return not (dtype.is_complex and kind.split()[-1] in ("max", "min"))


KINDS = (*MOVING, *(f"{k} {r}" for k in ("all_reduce", "reduce_scatter") for r in REDUCTIONS))
CASES = [(kind, dtype.name) for kind in KINDS for dtype in ALL if legal(kind, dtype)]


def exchange_once(transport: HostTransport, kind: str, dtype: DType, rank: int) -> np.ndarray:
    """Return what a rank gets of an exchange among all."""
    group, source = tuple(range(RANKS)), source_of(dtype, rank)
    name, _, reduction = kind.partition(" ")
    rows = {"all_gather": 6 * RANKS, "reduce_scatter": 6 // RANKS}.get(name, 6)
    target = np.empty((rows, 5), dtype.numpy)
    if kind == "send":
        # Along a ring, where each sends before it receives.
        transport.begin(Send("x", "m", dim((rank + 1) % RANKS)), None, source, group, rank)
        transport.begin(Receive("y", "m", dim((rank - 1) % RANKS)), target, None, group, rank)
    else:
        root = dim(1) if name == "broadcast" else None
        exchange = Collective(name, "y", "x", "m", RANKS, reduction, root)
        transport.begin(exchange, target, source, group, rank)
    transport.wait("y", 0)
    return target


def expected(kind: str, dtype: DType, rank: int) -> np.ndarray:
    """Return the same by NumPy alone."""
    sources = [source_of(dtype, r) for r in range(RANKS)]
    name, _, reduction = kind.partition(" ")
    blocks = [np.split(s, RANKS) for s in sources]
    match name:
        case "all_gather":
            return np.concatenate(sources)
        case "all_to_all":
            return np.concatenate([b[rank] for b in blocks])
        case "broadcast":
            return sources[1]
        case "send":
            return sources[(rank - 1) % RANKS]
    function: Any = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    wide = np.float32 if dtype.is_half else dtype.numpy
    with np.errstate(all="ignore"):
        total = sources[0].astype(wide)
        for source in sources[1:]:
            total = function[reduction](total, source.astype(wide))
        total = total.astype(dtype.numpy)
    return total if name == "all_reduce" else np.split(total, RANKS)[rank]


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> list[dict[tuple[str, str], Any]]:
    """Return what each of three processes gets of every case, one after the other."""

    def work(links: Links) -> dict[tuple[str, str], np.ndarray]:
        transport = HostTransport(links)
        return {
            (kind, name): exchange_once(transport, kind, DTYPES[name], links.rank).view(np.uint8)
            for kind, name in CASES
        }

    return rank_processes.run(RANKS, work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_goes_between_processes(
    exchanged: list[dict[tuple[str, str], Any]], kind: str
) -> None:
    for name in (d.name for d in ALL if legal(kind, d)):
        for rank in range(RANKS):
            found = exchanged[rank][kind, name]
            right = np.ascontiguousarray(expected(kind, DTYPES[name], rank)).view(np.uint8)
            assert found.tobytes() == right.tobytes(), f"{kind} of {name} on rank {rank}"


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_all_ranks_get_the_same_bits(
    exchanged: list[dict[tuple[str, str], Any]], reduction: str
) -> None:
    for dtype in ALL:
        if legal(reduction, dtype):
            key = f"all_reduce {reduction}", dtype.name
            assert len({exchanged[rank][key].tobytes() for rank in range(RANKS)}) == 1


def test_blocks_are_added_in_the_order_of_places(
    exchanged: list[dict[tuple[str, str], Any]],
) -> None:
    blocks = [source_of(DTYPES["f32"], rank) for rank in range(RANKS)]
    found = exchanged[0]["all_reduce sum", "f32"].tobytes()
    assert found == reduce_blocks(blocks, "sum").tobytes()
    assert found != reduce_blocks(blocks[::-1], "sum").tobytes()


def test_half_types_are_rounded_once() -> None:
    blocks = [np.full(1, v, DTYPES["bf16"].numpy) for v in (256.0, 1.0, 1.0)]
    # In bf16 256 + 1 is 256 again; in f32 all three are 258.
    assert float(reduce_blocks(blocks, "sum")[0]) == 258.0


def test_a_nan_goes_into_every_extreme_and_integers_wrap_around() -> None:
    numbers = [np.array([1.0, np.nan]), np.array([np.nan, 2.0])]
    assert np.isnan(reduce_blocks(numbers, "max")).all()
    bytes_ = [np.array([200], np.uint8), np.array([100], np.uint8)]
    assert reduce_blocks(bytes_, "sum")[0] == 300 - 256


def test_groups_of_two_axes_do_not_meet(tmp_path: Path) -> None:
    mesh = Mesh((("dp", 2), ("tp", 2)), (0, 1, 2, 3))

    def work(links: Links) -> list[list[int]]:
        transport, rank = HostTransport(links), links.rank
        found = list[list[int]]()
        for axis in ("dp", "tp", "dp"):
            group, place = mesh.group(rank, axis), mesh.place(rank)[axis]
            source, target = np.array([rank]), np.empty(2, np.int64)
            transport.begin(
                Collective("all_gather", "y", "x", axis, 2), target, source, group, place
            )
            transport.wait("y", 0)
            found.append(target.tolist())
        return found

    found = rank_processes.run(4, work, tmp_path)
    assert found[0] == [[0, 2], [0, 1], [0, 2]]
    assert found[3] == [[1, 3], [2, 3], [1, 3]]


def test_places_may_be_symbols_and_one_may_be_the_own(tmp_path: Path) -> None:
    def work(links: Links) -> list[int]:
        transport, rank, group = HostTransport(links), links.rank, tuple(range(links.size))
        found = list[int]()
        for step in range(links.size):
            source, target = np.array([10 * rank + step]), np.empty(1, np.int64)
            to = (symbol("m.place") + (links.size - step)) % links.size
            origin = (symbol("m.place") + step) % links.size
            transport.begin(Send("x", "m", to), None, source, group, rank)
            transport.begin(Receive("y", "m", origin), target, None, group, rank)
            transport.wait("y", 0)
            found.append(int(target[0]))
        return found

    assert rank_processes.run(3, work, tmp_path)[1] == [10, 21, 2]


def test_several_exchanges_are_open_at_once_and_end_in_any_order(tmp_path: Path) -> None:
    def work(links: Links) -> tuple[list[int], list[int]]:
        transport, rank = HostTransport(links), links.rank
        y, z = np.empty(2, np.int64), np.empty(1, np.int64)
        transport.begin(
            Collective("all_gather", "y", "x", "m", 2), y, np.array([rank]), (0, 1), rank
        )
        transport.begin(
            Collective("all_reduce", "z", "z", "m", 2, "sum"), z, np.array([rank + 5]), (0, 1), rank
        )
        transport.wait("z", 0)
        transport.wait("y", 0)
        return y.tolist(), z.tolist()

    assert rank_processes.run(2, work, tmp_path) == [([0, 1], [11])] * 2


@pytest.mark.parametrize("to", [(0,), (1, 2), (2, 1, 0)])
def test_some_ranks_receive_a_broadcast(tmp_path: Path, to: tuple[int, ...]) -> None:
    """And nothing is sent to others, whose targets keep the poison."""

    def work(links: Links) -> tuple[list[float], list[int]]:
        sent, send = list[int](), links.send

        def noted(rank: int, *rest: Any) -> None:
            sent.append(rank)
            send(rank, *rest)

        links.send = noted  # type: ignore[method-assign]
        transport, source, target = HostTransport(links), np.full(2, links.rank), np.zeros(2)
        exchange = Collective("broadcast", "y", "x", "m", 3, root=dim(1), to=to)
        transport.begin(exchange, target, source.astype(float), (0, 1, 2), links.rank)
        transport.wait("y", 0)
        return target.tolist(), sent

    found = rank_processes.run(3, work, tmp_path)
    assert [set(sent) for _, sent in found] == [set(), {*to} - {1}, set()]
    for rank, (target, _) in enumerate(found):
        assert target == [1, 1] if rank in to else np.isnan(target).all()


def test_nothing_is_there_before_the_wait(tmp_path: Path) -> None:
    def work(links: Links) -> bool:
        transport, target = HostTransport(links), np.zeros(2)
        source = np.ones(1)
        exchange = Collective("all_gather", "y", "x", "m", 2)
        transport.begin(exchange, target, source, (0, 1), links.rank)
        before = np.isnan(target).all()
        transport.wait("y", 0)
        return bool(before and (target == 1).all())

    assert rank_processes.run(2, work, tmp_path) == [True, True]


def test_a_source_that_is_written_meanwhile_is_named(tmp_path: Path) -> None:
    def work(links: Links) -> str:
        transport, source = HostTransport(links), np.ones(1)
        exchange = Collective("all_gather", "y", "x", "m", 2)
        transport.begin(exchange, np.empty(2), source, (0, 1), links.rank)
        source[0] = 2
        with pytest.raises(InternalError) as caught:
            transport.wait("y", 0)
        return str(caught.value)

    for text in rank_processes.run(2, work, tmp_path):
        assert "the source of `all_gather y <- x over m: 2` was written" in text


def test_in_place_and_empty_exchanges(tmp_path: Path) -> None:
    def work(links: Links) -> tuple[list[int], int]:
        transport, group = HostTransport(links), (0, 1)
        both = np.array([links.rank + 1, 7])
        exchange = Collective("all_reduce", "x", "x", "m", 2, "prod")
        transport.begin(exchange, both, both, group, links.rank)
        transport.wait("x", 0)
        empty = np.empty((0, 3))
        gather = Collective("all_gather", "y", "e", "m", 2)
        transport.begin(gather, np.empty((0, 3)), empty, group, links.rank)
        transport.wait("y", 0)
        scalar, total = np.array(links.rank), np.array(0)
        transport.begin(
            Collective("all_reduce", "t", "s", "m", 2, "max"), total, scalar, group, links.rank
        )
        transport.wait("t", 0)
        return both.tolist(), int(total)

    assert rank_processes.run(2, work, tmp_path) == [([2, 49], 1)] * 2


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    def work(links: Links) -> list[str]:
        transport, rank = HostTransport(links), links.rank
        found = list[str]()

        def attempt(exchange: Collective, target: np.ndarray, source: np.ndarray) -> None:
            with pytest.raises((InternalError, Unsupported)) as caught:
                transport.begin(exchange, target, source, (0, 1), rank)
            found.append(caught.value.diagnostic.message)

        one = np.zeros(4, np.complex64)
        attempt(Collective("all_reduce", "y", "x", "m", 2, "max"), one, one)
        attempt(Collective("all_reduce", "y", "x", "m", 2, "mean"), np.zeros(4), np.zeros(4))
        attempt(Collective("all_to_all", "y", "x", "m", 2), np.zeros(3), np.zeros(3))
        attempt(Collective("all_gather", "y", "x", "m", 2), np.zeros((4, 4)).T, np.zeros((2, 4)))
        return found

    assert rank_processes.run(2, work, tmp_path)[0] == [
        "complex numbers (c64) have no max over ranks",
        "no reduction over ranks is called `mean`",
        "`all_to_all y <- x over m: 2` among 2 ranks has unequal blocks",
        "`all_gather y <- x over m: 2` uses memory that is not dense",
    ]


def test_ranks_in_different_exchanges_are_told_apart(tmp_path: Path) -> None:
    def work(links: Links) -> str:
        transport = HostTransport(links)
        kind = "all_gather" if links.rank == 0 else "all_to_all"
        target = np.empty(4 if links.rank == 0 else 2)
        transport.begin(Collective(kind, "y", "x", "m", 2), target, np.ones(2), (0, 1), links.rank)
        try:
            transport.wait("y", 0)
        except InternalError as error:
            return error.diagnostic.message
        return ""

    assert "is in a different collective than" in rank_processes.run(2, work, tmp_path)[0]


def test_arrays_of_all_ranks_come_to_the_first(tmp_path: Path) -> None:
    def work(links: Links) -> Any:
        rank = links.rank
        first = gather_arrays(links, {"a": np.full((2, rank), rank), "b": np.array(rank * 1.5)})
        again = gather_arrays(links, {"a": np.array([rank == 1])})
        return first, again

    found = rank_processes.run(3, work, tmp_path)
    assert found[1:] == [(None, None)] * 2
    first, again = found[0]
    assert [part["a"].tolist() for part in first] == [[[], []], [[1], [1]], [[2, 2], [2, 2]]]
    assert [part["b"].tolist() for part in first] == [0.0, 1.5, 3.0]
    assert [part["a"].tolist() for part in again] == [[False], [True], [False]]
