"""Who the ranks are: what starters say in the environment, and what cannot be."""

from __future__ import annotations

import pytest

from fusec.diagnostics import FusecError
from fusec.run.distributed import ranks
from fusec.run.distributed.ranks import LOCAL, Ranks, from_environment

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node0", "MASTER_PORT": "29501",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}  # fmt: skip
PMI = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1", "SLURM_NNODES": "1"}
FUSEC = {
    "FUSEC_RANK": "1", "FUSEC_RANKS": "2", "MASTER_ADDR": LOCAL, "MASTER_PORT": "4000",
    "FUSEC_RANK_TOKEN": "abc",
}  # fmt: skip
MEETING = {"MASTER_ADDR": "node0", "MASTER_PORT": "1234"}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, Ranks()),
        (TORCHRUN, Ranks(3, 8, 1, 2, "node0", 29501, "torchrun")),
        (OPEN_MPI, Ranks(1, 4, 1, 4, LOCAL, 29500, "Open MPI")),
        ({**OPEN_MPI, **TORCHRUN}, Ranks(1, 4, 1, 4, "node0", 29501, "Open MPI")),
        ({**PMI, **MEETING}, Ranks(2, 4, 0, 2, "node0", 1234, "PMI")),
        (SLURM, Ranks(1, 2, 1, 2, LOCAL, 29500, "Slurm")),
        ({**SLURM, "SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": "2"},
         Ranks(1, 2, 1, 2, LOCAL, 29500, "Slurm")),
        ({**SLURM, **MEETING, "SLURM_STEP_NUM_NODES": "2"},
         Ranks(1, 2, 1, 0, "node0", 1234, "Slurm")),
        # A shell of a job, in which Slurm has started no rank.
        ({"SLURM_NTASKS": "8"}, Ranks()),
        (FUSEC, Ranks(1, 2, 1, 2, LOCAL, 4000, "fusec", "abc")),
        ({**TORCHRUN, **FUSEC}, Ranks(1, 2, 1, 2, LOCAL, 4000, "fusec", "abc")),
    ],
)  # fmt: skip
def test_starters_are_told_apart(given: dict[str, str], found: Ranks) -> None:
    assert from_environment(given) == found


def without(given: dict[str, str], *names: str) -> dict[str, str]:
    return {name: text for name, text in given.items() if name not in names}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (without(TORCHRUN, "WORLD_SIZE"), "RANK is set, but WORLD_SIZE is not"),
        (without(TORCHRUN, "RANK"), "WORLD_SIZE is set, but RANK is not"),
        (without(TORCHRUN, "MASTER_ADDR"), "RANK is set, but MASTER_ADDR is not"),
        (without(TORCHRUN, "MASTER_PORT"), "RANK is set, but MASTER_PORT is not"),
        (PMI, "PMI_RANK is set, but MASTER_ADDR is not"),
        (without(SLURM, "SLURM_NTASKS"), "SLURM_PROCID is set, but SLURM_STEP_NUM_TASKS is not"),
        ({**TORCHRUN, "RANK": "8"}, "RANK=8 is out of range: WORLD_SIZE is 8"),
        ({**TORCHRUN, "RANK": "-1"}, "RANK='-1': expected an integer of at least 0"),
        ({**TORCHRUN, "RANK": "one"}, "RANK='one': expected an integer of at least 0"),
        ({**TORCHRUN, "RANK": "\u0663"}, "RANK='\u0663': expected an integer of at least 0"),
        ({**TORCHRUN, "WORLD_SIZE": "0"}, "WORLD_SIZE='0': expected an integer of at least 1"),
        ({**TORCHRUN, "LOCAL_RANK": "2"},
         "LOCAL_RANK=2 is out of range: the number of ranks there is 2"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "9"}, "LOCAL_WORLD_SIZE=9, but there are 8 ranks"),
        ({**TORCHRUN, "MASTER_PORT": "70000"}, "MASTER_PORT=70000 is not a port: the "
         "maximum is 65535"),
        ({**TORCHRUN, "MASTER_PORT": ""},
         "MASTER_PORT='': expected an integer of at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(FusecError) as caught:
        from_environment(given)
    assert caught.value.diagnostic.message == message


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf"])
def test_patience_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("FUSEC_RANK_TIMEOUT", text)
    with pytest.raises(FusecError, match=r"expected seconds above 0"):
        ranks.timeout()
    monkeypatch.setenv("FUSEC_RANK_TIMEOUT", "2.5")
    assert ranks.timeout() == 2.5
    monkeypatch.delenv("FUSEC_RANK_TIMEOUT")
    assert ranks.timeout() == ranks.TIMEOUT
