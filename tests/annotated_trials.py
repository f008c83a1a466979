"""Annotated programs through every stage without a GPU: each is verified, or rejected by a rule.

`python tests/annotated_trials.py --count 2000` prints how many were, and keeps what failed.
"""

from __future__ import annotations

import argparse
import linecache
import random
import sys
import time
import traceback
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from annotated import Drawn, draw, repeated, repeated_all
from program_races import races
from rank_threads import over_sockets

from fusec.commands.running.judge_ranks import expected_of_ranks
from fusec.commands.running.rank import assembled, parts_of
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.ir.graph import Fusion
from fusec.ir.sharding import Mesh, Sharding
from fusec.ir.text import to_text
from fusec.lowering import division
from fusec.nvfuser.modules import make_modules
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.rank import run_rank
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import compare
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.run.transports.host import HostTransport
from fusec.shard.partition import partition
from tools.edits import candidates
from tools.trial import general, kind_of

ALONE = Mesh((("alone", 1),), (0,))


@dataclass(frozen=True)
class Outcome:
    """What became of a program: verified, rejected, undecided or failed, and why."""

    status: str
    why: str = ""
    message: str = ""


class Wrong(Exception):
    """Results that are wrong, or ranks whose copies differ."""


def trial(drawn: Drawn, seed: int = 0, *, plans: bool = False) -> Outcome:
    """Return what becomes of a program. plans: kernels are planned and written, too."""
    try:
        fusion = fusion_of(drawn)
        sizes = choose_sizes(fusion)
        dims = tuple(replace(d, default=sizes[d.name]) for d in fusion.dims)
        fusion = replace(fusion, dims=dims)
        return _ran(fusion, drawn, seed, plans)
    except FusecError as error:
        if error.exit_code in (2, 3):
            if error.diagnostic.span is None:
                return Outcome("failed", f"no place: {_rule(error)}", _trace(error))
            return Outcome("rejected", _rule(error), error.render())
        return Outcome("failed", kind_of(error), _trace(error))
    except Wrong as error:
        return Outcome("failed", error.args[0], str(error.args[1]))
    except Exception as error:
        return Outcome("failed", kind_of(error), _trace(error))


def _rule(error: FusecError) -> str:
    return general(error.diagnostic.message)


def _trace(error: Exception) -> str:
    text = error.render() if isinstance(error, FusecError) else ""
    return text + "\n" + "".join(traceback.format_exception(error))[-5000:]


def fusion_of(drawn: Drawn) -> Fusion:
    """Return the fusion of a program as a user would give it: read, or made by its script."""
    if drawn.script:
        return executed(drawn.script)
    return read_text(to_text(drawn.fusion), "drawn.yaml")


def executed(script: str) -> Fusion:
    """Return the fusion of a script that nvFuser's modules run."""
    names = {**make_modules()}
    kept = {n: sys.modules.get(n) for n in names}
    sys.modules.update(names)
    try:
        linecache.cache["drawn.py"] = (len(script), None, script.splitlines(True), "drawn.py")
        module = types.ModuleType("drawn")
        exec(compile(script, "drawn.py", "exec"), module.__dict__)
        return module.__dict__["fd"].graph()
    finally:
        for name, old in kept.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old


def options_of(drawn: Drawn) -> CompileOptions:
    """Return the options to compile a program with."""
    return CompileOptions(
        without=drawn.without, with_=drawn.asked, streams=drawn.streams, jobs=1,
        as_written=drawn.as_written, sum_chunks=drawn.sum_chunks,
    )  # fmt: skip


def _ran(fusion: Fusion, drawn: Drawn, seed: int, plans: bool) -> Outcome:
    options = options_of(drawn)
    program = Compilation(fusion, options)
    sizes = choose_sizes(fusion)
    divided = division(fusion, options).partition
    assert program.posts.name  # planned once, before the threads start
    if plans:
        assert program.host.name
        assert program.kernel_sources is not None
    _check_repeated(fusion, seed)
    mesh = fusion.mesh or ALONE
    places = {f"{axis}.place": place for axis, place in mesh.place(mesh.ranks[-1]).items()}
    sizes_of_rank = {**program.local.hints, **places}
    found_races = [] if drawn.asked else races(program.posts, sizes_of_rank)
    if found_races:
        raise Wrong("race", found_races[0])
    inputs = random_inputs(fusion, sizes, seed)
    shares = divided.fusion.hints

    def one(rank: int, transport: HostTransport) -> dict[str, Any]:
        own = parts_of(fusion, inputs, divided.placed, mesh, rank, shares)
        order = random.Random(seed + rank)
        return run_rank(program, own, transport, rank, draw=order)

    parts = over_sockets(mesh.size, one)
    outputs, copies = assembled(fusion, parts, divided.placed, mesh, shares)
    if copies:
        raise Wrong("copies", "; ".join(copies))
    return _judged(program, inputs, sizes, outputs, seed)


def _judged(
    program: Compilation,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    outputs: Mapping[str, Any],
    seed: int,
) -> Outcome:
    spelled, model = expected_of_ranks(program, Model(), ())
    verdict = compare(spelled, sizes, inputs, outputs, seed=seed, model=model)
    if verdict.ok:
        return Outcome("verified")
    if any(o.wrong for o in verdict.outputs):
        raise Wrong("mismatch", verdict.text())
    plain = replace(program.original, mesh=None, shardings={}, pins=())
    alone = Compilation(plain, CompileOptions(jobs=1))
    found = run_rank(alone, inputs, None, 0)
    if compare(plain, sizes, inputs, found, seed=seed, model=Model()).ok:
        raise Wrong("undecided where it is divided", verdict.text())
    return Outcome("undecided", "", verdict.text())


def _check_repeated(fusion: Fusion, seed: int) -> None:
    """Raise Wrong where annotations that say what is inferred change what a rank runs."""
    if not fusion.shardings:
        return
    before = to_text(partition(fusion))
    for name, again in _repeated(fusion, seed):
        after = to_text(partition(again))
        if before != after:
            said = again.shardings.get(name, "all of them")
            raise Wrong("repeated", f"`{name}`: {said} changes\n{before}\n--\n{after}")


def _repeated(fusion: Fusion, seed: int) -> Iterator[tuple[str, Fusion]]:
    """Yield the fusion with all that is inferred, and with some of it alone."""
    yield "all", repeated_all(fusion)
    yield from repeated(fusion, random.Random(seed), 6)


# -- shrinking


def shrunk(drawn: Drawn, outcome: Outcome, seed: int, seconds: float) -> Drawn:
    """Return the smallest program found that fails in the same way."""
    limit = time.monotonic() + seconds
    progress = True
    while progress and time.monotonic() < limit:
        progress = False
        for simpler in _simpler(drawn):
            if time.monotonic() > limit:
                break
            found = trial(simpler, seed)
            if (found.status, found.why) == (outcome.status, outcome.why):
                drawn, progress = simpler, True
                break
    return drawn


def _simpler(drawn: Drawn) -> Iterable[Drawn]:
    plain = replace(drawn, without=(), asked=(), streams=4, as_written=False, sum_chunks=0)
    if plain != drawn:
        yield plain
        yield replace(plain, without=("loops_by_cost",))
        yield replace(drawn, without=(), asked=())
        yield replace(drawn, streams=4, as_written=False, sum_chunks=0)
    if drawn.script:
        lines = drawn.script.splitlines(True)
        for k in reversed(range(len(lines))):
            if "import" not in lines[k] and "with Fusion" not in lines[k]:
                yield replace(drawn, script="".join(lines[:k] + lines[k + 1 :]))
        return
    fusion = drawn.fusion
    for made in candidates(fusion):
        values = {v.name: v for v in made.values}
        said = {
            n: s for n, s in fusion.shardings.items()
            if n in values and values[n].rank == len(s.dims)
        }  # fmt: skip
        yield replace(drawn, fusion=replace(made, mesh=fusion.mesh, shardings=said))
    for name, said in fusion.shardings.items():
        others = {n: s for n, s in fusion.shardings.items() if n != name}
        yield replace(drawn, fusion=replace(fusion, shardings=others))
        for plainer in _plainer(said):
            yield replace(drawn, fusion=replace(fusion, shardings={**others, name: plainer}))
    if fusion.mesh is not None and not any(
        x != "stream" for s in fusion.shardings.values() for x, _ in s.axes
    ):
        yield replace(drawn, fusion=replace(fusion, mesh=None))


def _plainer(said: Sharding) -> Iterable[Sharding]:
    for axis, _ in said.axes:
        yield said.without(axis)
    if said.ranks is not None:
        yield replace(said, ranks=None)


# -- many


def described(drawn: Drawn) -> str:
    """Return a program as text: its options as a comment."""
    options = {
        k: v for k, v in vars(drawn).items() if k not in ("fusion", "script") and v
    }  # fmt: skip
    return f"# {options}\n{drawn.script or to_text(drawn.fusion)}"


def try_many(
    seed: int, first: int, count: int, seconds: float, keep: Path | None, shrink: float = 20.0
) -> Counter[tuple[str, str]]:
    """Return how many programs of a seed had which outcome; what fails is kept, and printed."""
    found, limit = Counter[tuple[str, str]](), time.monotonic() + seconds
    for number in range(first, first + count):
        if time.monotonic() > limit:
            break
        try:
            drawn = draw(seed, number)
        except Exception as error:
            found["failed", f"draw {kind_of(error)}"] += 1
            print(number, _trace(error))
            continue
        began = time.monotonic()
        outcome = trial(drawn, number, plans=number % 5 == 0)
        spent = time.monotonic() - began
        if spent > 20:
            print(f"{number}: {spent:.0f} s", flush=True)
        found[outcome.status, outcome.why] += 1
        found["all", "script" if drawn.script else "file"] += 1
        if outcome.status != "failed":
            continue
        print(f"{number}: {outcome.why}: {outcome.message[:300]}", flush=True)
        if keep is not None and found[outcome.status, outcome.why] <= 3:
            keep.mkdir(exist_ok=True, parents=True)
            small = shrunk(drawn, outcome, number, shrink) if shrink else drawn
            text = f"{outcome.why}\n{outcome.message}\n\n{described(small)}\n\n{described(drawn)}"
            (keep / f"{seed}-{number}.txt").write_text(text)
    return found


def main() -> None:
    """Try programs as the command line says."""
    parser = argparse.ArgumentParser()
    for name, default in (("seed", 0), ("first", 0), ("count", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--shrink", type=float, default=20.0)
    given = parser.parse_args()
    began = time.monotonic()
    found = try_many(given.seed, given.first, given.count, given.seconds, given.keep, given.shrink)
    for (status, why), number in sorted(found.items(), key=lambda e: (e[0][0], -e[1])):
        print(f"{number:6} {status} {why}")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
