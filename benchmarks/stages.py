"""Layers over several GPUs: a pipeline of two stages, experts on all ranks, and a divided MLP.

Parts of `benchmarks.two_gpus`; PyTorch moves what goes from rank to rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import fusec
from benchmarks import programs_ranks as texts
from benchmarks.paired import medians, ratio, rounds
from benchmarks.programs_ranks import Ranks, Way, errors

BATCHES, BATCH = 8, 2048
"""Of a pipeline, and tokens of each."""
MLP_SLICES, WHOLE = (2, 4), ("scattered_sums",)
"""Of rows of the MLP whose sums over ranks overlap with what is computed; for one sum of all."""
EXPERT_TOKENS, EXPERT_DEPTH, EXPERT_WIDE = 4096, 4096, 14336
"""Tokens of each rank, and the sizes of its expert."""


def stage_text() -> str:
    """Return the stage of a pipeline."""
    return texts.mlp(0, BATCH)


def expert_text() -> str:
    """Return an expert, for any number of tokens."""
    return texts.mlp(0, EXPERT_TOKENS, EXPERT_DEPTH, EXPERT_WIDE)


def pipelines(ranks: Ranks) -> dict[str, Any]:
    """Return the times of two stages on two ranks each, and on one GPU one after the other.

    The last rank of an odd number computes both stages. Of n batches n / (n + 1) can be hidden.
    """
    distributed, program = ranks.distributed, fusec.compile(stage_text())
    wide, deep = (texts.WIDE, texts.DEPTH), (texts.DEPTH, texts.WIDE)
    weights = [[ranks.shared(*shape) for shape in (wide, wide, deep)] for _ in range(2)]
    given = [ranks.shared(BATCH, texts.DEPTH) for _ in range(BATCHES)]
    stage, other = ranks.rank % 2, ranks.rank ^ 1
    arrived = [x.new_empty(x.shape) for x in given]

    def one_gpu() -> Any:
        made: Any = None
        for x in given:
            made = program(program(x, *weights[0]), *weights[1])
        return made

    def two_gpus() -> Any:
        if other >= ranks.size:
            return one_gpu()
        made: Any = None
        for x, here in zip(given, arrived, strict=True):
            if stage == 0:
                made = program(x, *weights[0])
                distributed.send(made, other)
            else:
                distributed.recv(here, other)
                made = program(here, *weights[1])
        return made

    right = one_gpu() if stage or other >= ranks.size else program(given[-1], *weights[0])
    wrong = errors(ranks, {"two GPUs": two_gpus}, right)
    taken = rounds(ranks, {"two GPUs": two_gpus, "one GPU": one_gpu}, 2)
    return {
        "errors": wrong,
        "call": medians(taken),
        "over_one_GPU": ratio(taken, "two GPUs", "one GPU"),
    }


def experts(ranks: Ranks) -> dict[str, Any]:
    """Return the times of tokens that are sent to the ranks of their experts, and come back.

    Expert k gets k + 1 times as many tokens as the first. The other way has PyTorch's matmuls.
    """
    torch, distributed, size = ranks.torch, ranks.distributed, ranks.size
    program = fusec.compile(expert_text())
    wide, deep = (EXPERT_WIDE, EXPERT_DEPTH), (EXPERT_DEPTH, EXPERT_WIDE)
    every = [[ranks.shared(*shape) for shape in (wide, wide, deep)] for _ in range(size)]
    own = every[ranks.rank]
    x = ranks.random(EXPERT_TOKENS, EXPERT_DEPTH)
    shares = torch.arange(1, size + 1, device="cuda", dtype=torch.float32)
    chosen = torch.multinomial(shares, EXPERT_TOKENS, replacement=True, generator=ranks.draw)
    order = torch.argsort(chosen)
    counts = torch.bincount(chosen, minlength=size)
    theirs = torch.empty_like(counts)
    distributed.all_to_all_single(theirs, counts)
    sent, received = counts.tolist(), theirs.tolist()

    def moved(expert: Callable[[Any], Any]) -> Any:
        here = x.new_empty((sum(received), EXPERT_DEPTH))
        distributed.all_to_all_single(here, x[order], received, sent)
        back = torch.empty_like(x)
        distributed.all_to_all_single(back, expert(here), sent, received)
        result = torch.empty_like(x)
        result[order] = back
        return result

    def by_torch(tokens: Any, weights: Any) -> Any:
        gate, up, down = weights
        hidden = torch.nn.functional.silu(tokens @ gate.T) * (tokens @ up.T)
        return hidden @ down.T

    right = torch.empty_like(x)
    for number, weights in enumerate(every):
        right[chosen == number] = by_torch(x[chosen == number], weights)
    ways = {
        "fusec": lambda: moved(lambda tokens: program(tokens, *own)),
        "PyTorch": lambda: moved(lambda tokens: by_torch(tokens, own)),
    }
    wrong = errors(ranks, ways, right)
    taken = rounds(ranks, ways, 4)
    return {
        "errors": wrong,
        "tokens": received,
        "call": medians(taken),
        "over_PyTorch": ratio(taken, "fusec", "PyTorch"),
    }


def divided_mlps(size: int) -> dict[str, tuple[str, Sequence[str]]]:
    """Return by name the MLPs over so many ranks, and what is disabled.

    slices: of rows, whose sums are taken while others are computed; all-reduce: of the whole.
    """
    found: dict[str, tuple[str, Sequence[str]]] = {
        f"{size} ranks, {n} slices": (texts.mlp(size, slices=n), ()) for n in MLP_SLICES
    }
    whole = texts.mlp(size)
    return {f"{size} ranks": (whole, ()), f"{size} ranks, all-reduce": (whole, WHOLE), **found}


def mlps(ranks: Ranks) -> dict[str, Any]:
    """Return the times of an MLP over all ranks and on one GPU, whose result is what is right."""
    size, rank, wide = ranks.size, ranks.rank, texts.WIDE // ranks.size
    x = ranks.shared(texts.TOKENS, texts.DEPTH)
    gate, up = (ranks.shared(texts.WIDE, texts.DEPTH) for _ in range(2))
    down = ranks.shared(texts.DEPTH, texts.WIDE)
    own = slice(rank * wide, (rank + 1) * wide)
    parts = gate[own].clone(), up[own].clone(), down[:, own].contiguous()
    single = fusec.compile(texts.mlp(0))
    divided = {
        name: fusec.compile(text, without=without)
        for name, (text, without) in divided_mlps(size).items()
    }
    ways: dict[str, Way] = {n: (lambda way=way: way(x, *parts)) for n, way in divided.items()}
    ways["one GPU"] = lambda: single(x, gate, up, down)
    wrong = errors(ranks, ways, single(x, gate, up, down))
    return {"errors": wrong, "call": medians(rounds(ranks, ways, 2))}
