"""Targets: the properties of GPUs as data, one file each in the folder of this module.

`fusec doctor --measure FOLDER` writes such a file for the local GPU; files in FUSEC_TARGETS=FOLDER,
which must exist, replace those of the same name here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, cast

from fusec.codes.usage import UNKNOWN_TARGET
from fusec.dataclasses import MISSING, dataclass, field, fields
from fusec.diagnostics import FusecError
from fusec.foreign import read_toml
from fusec.options import environment
from fusec.target.costs import Costs, read_costs

FOLDER = Path(__file__).parent
ORDER = ("sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")


@dataclass(frozen=True)
class Link:
    """How one kind of communication between GPUs uses their links.

    reach: the fraction of `Target.link` at which a GPU sends; latency: minimum seconds. crowding:
    the relative slowdown per additional GPU that it sends to at the same time. serial: seconds of
    the latency that add up over peers. bulk_reach, bulk_latency: both for large messages, where
    another protocol sends them; used where it is faster.
    """

    reach: float
    latency: float
    crowding: float = 0.0
    serial: float = 0.0
    bulk_reach: float = 0.0
    bulk_latency: float = 0.0

    def moving(self, alone: float, peers: int) -> float:
        """Return the seconds, beyond the latency, of a transfer that takes `alone` at link rate."""
        slowed = self.slowdown(peers) * alone
        if not self.bulk_reach:
            return slowed / self.reach
        bulk = self.bulk_latency - self.latency + slowed / self.bulk_reach
        return min(slowed / self.reach, bulk)

    def least(self, peers: int) -> float:
        """Return the minimum seconds to send to `peers` GPUs at the same time."""
        return self.latency + self.serial * max(peers - 1, 0)

    def slowdown(self, peers: int) -> float:
        """Return the slowdown of sending to `peers` GPUs at the same time."""
        return 1 + self.crowding * max(peers - 1, 0)


@dataclass(frozen=True)
class Target:
    """A GPU.

    arch: as NVRTC takes it. Rates per second: bandwidth, of bytes copied in memory; l2_bandwidth,
    of bytes read from L2; flops, of fp32 operations (a multiply-add is two); special, of special
    functions; half_flops, of fp16/bf16 tensor-core operations. launch: minimum seconds of a kernel.
    registers: 32-bit registers per SM; threads: per SM; shared: bytes of shared memory per block;
    l2: bytes. issue: the fraction of `flops` that kernels reach among their loads. rates: the
    fraction of `bandwidth` reached, by family and access. write_cost: the time to write a byte
    relative to reading it, where as many are read as written. dirty: the fraction of L2 in which
    results may wait to be written back. `draw`: the bandwidth of one SM when the others are idle,
    relative to an equal share. reread: the fraction of repeated reads of a kernel's blocks that is
    served by L2, since L1 does not hold it. link: bytes per second that a GPU sends over its links
    to others, while as many arrive; links: by kind of communication, how it uses the links.
    contention: the fraction of a transfer's memory time that overlapping kernels lose.
    host_call, host_slice: seconds of the host for a call with a ring loop, and for each slice.
    cost: the coefficients of the cost model; cost_of: the target on whose times they were fitted.
    clusters: the number of resident clusters by cluster size, for blocks with an SM each.
    """

    arch: str
    device: str
    sms: int
    l2: int
    shared: int
    threads: int
    registers: int
    bandwidth: float
    l2_bandwidth: float
    flops: float
    special: float
    half_flops: float
    launch: float
    issue: float
    write_cost: float
    dirty: float
    draw: float
    reread: float
    link: float
    contention: float
    host_call: float
    host_slice: float
    cost: Costs = field(hash=False)
    cost_of: str
    rates: Mapping[str, Mapping[str, float]] = field(hash=False)
    clusters: Mapping[int, int] = field(hash=False, default_factory=dict[int, int])
    links: Mapping[str, Link] = field(hash=False, default_factory=dict[str, Link])

    @property
    def capability(self) -> int:
        """Return the compute capability as a number, 90 for sm_90a."""
        return capability_of(self.arch)

    @property
    def has_wgmma(self) -> bool:
        """Return whether warpgroup matrix instructions exist (sm_90a only)."""
        return self.arch == "sm_90a"

    @property
    def read_bandwidth(self) -> float:
        """Return the peak rate of reads alone: no kernel moves more bytes per second."""
        return self.bandwidth / (1 - (self.write_cost - 1) / 2)

    @property
    def write_back(self) -> int:
        """Return the bytes of results that may be left in L2 when a kernel has ended."""
        return int(self.l2 * self.dirty)

    def resident_clusters(self, blocks: int) -> int:
        """Return how many clusters of `blocks` blocks are resident, with one block per SM."""
        return self.clusters.get(blocks, max(1, self.sms // blocks))

    def reach(self, family: str, access: str) -> float:
        """Return the fraction of the bandwidth that kernels of `family` reach for an access."""
        return self.rates[family][access]

    @property
    def best_reach(self) -> float:
        """Return the highest fraction of the bandwidth that any family reaches."""
        return max(rate for rates in self.rates.values() for rate in rates.values())


_TABLES = ("cost", "cost_of", "rates", "clusters", "links")
FIELDS = tuple(f for f in fields(Target) if f.name not in _TABLES)
"""The fields that are one string or number each, in the order of target files."""
TAKEN_OVER = (
    "issue", "write_cost", "dirty", "draw", "reread", "link", "contention", "host_call",
    "host_slice",
)  # fmt: skip
"""Fields that a file may inherit from the GPU named by `like`."""


def _read(path: Path) -> dict[str, Any]:
    return read_toml(path, "a target file")


@cache
def _shipped(arch: str) -> Mapping[str, Any]:
    """Return the contents of the shipped file of a target."""
    return _read(FOLDER / f"{arch}.toml")


def own_file(arch: str, folder: Path | None = None) -> Path | None:
    """Return the user's file of a target, in `folder` or FUSEC_TARGETS; None without one."""
    own = environment("FUSEC_TARGETS") if folder is None else folder
    if folder is None and own is not None and not Path(own).is_dir():
        raise FusecError(
            f"FUSEC_TARGETS: `{own}` is not a directory",
            help="`fusec doctor --measure DIR` writes target files; unset it to use those of fusec",
        )
    path = None if own is None else Path(own) / f"{arch}.toml"
    return path if path is not None and path.exists() else None


@cache
def load(arch: str, folder: Path | None = None) -> Target:
    """Return the target of the user's file, else of the shipped one.

    FusecError names a field that is missing, unknown or not a number.
    """
    own = own_file(arch, folder)
    path = own or FOLDER / f"{arch}.toml"
    data = dict(_shipped(arch)) if own is None else _read(own)
    like = data.pop("like", None)
    shipped = _shipped(like or "sm_90a")
    cost, cost_of = _costs(arch, data.pop("cost", None), data.pop("cost_of", None), path)
    rates: dict[str, dict[str, float]] = shipped["reach"]
    measured: dict[str, dict[str, float]] = data.pop("reach", {})
    try:
        rates = {family: {**known, **measured.get(family, {})} for family, known in rates.items()}
    except (AttributeError, TypeError):
        raise FusecError(f"target file `{path}`: `reach` must contain tables of numbers") from None
    clusters = _clusters(data.pop("clusters", {}), path)
    links = {**shipped["links"], **_tables(data.pop("links", {}), path)}
    values = {name: shipped[name] for name in TAKEN_OVER} | data
    kinds = {f.name: str(f.type) for f in FIELDS}
    for name in (*values, *kinds):
        if name not in kinds or name not in values:
            problem = "unknown" if name not in kinds else "missing"
            raise FusecError(f"target file `{path}`: {problem} field `{name}`")
        if not _fits(values[name], kinds[name]):
            raise FusecError(f"target file `{path}`: `{name}` must be a positive {kinds[name]}")
    for family, known in rates.items():
        for access, rate in known.items():
            if not _fits(rate, "float"):
                name = f"reach.{family}.{access}"
                raise FusecError(f"target file `{path}`: `{name}` must be a positive float")
    return Target(
        **values,
        cost=cost,
        cost_of=cost_of,
        rates=rates,
        clusters=clusters,
        links=_links(links, path),
    )


def _costs(arch: str, tables: object, of: object, path: Path) -> tuple[Costs, str]:
    """Return the coefficients of the cost model, and the target on whose times they were fitted.

    They come from the file's own tables, or else from the target that `cost_of` names; a user's
    file with neither has those of the file that it replaces.
    """
    if tables is not None and of is not None:
        raise FusecError(f"target file `{path}`: `cost` and `cost_of` exclude each other")
    if tables is not None:
        return read_costs(tables, path), arch
    if of is None and path.parent != FOLDER:
        known = _shipped(arch)
        of = arch if "cost" in known else known.get("cost_of")
    if isinstance(of, str) and of in ORDER and "cost" in _shipped(of):
        return _shipped_costs(of), of
    fitted = ", ".join(name for name in ORDER if "cost" in _shipped(name))
    raise FusecError(
        f"target file `{path}`: `cost_of` must be one of {fitted}, to whose times coefficients of "
        "the cost model are fitted, unless tables `cost` have others"
    )


@cache
def _shipped_costs(arch: str) -> Costs:
    return read_costs(_shipped(arch)["cost"], FOLDER / f"{arch}.toml")


def _tables(given: object, path: Path) -> dict[str, object]:
    if not isinstance(given, dict):
        raise FusecError(
            f"target file `{path}`: `links` must have a table per kind of communication"
        )
    return cast("dict[str, object]", given)


def _links(given: Mapping[str, object], path: Path) -> dict[str, Link]:
    """Return how each kind of communication uses the links."""
    needed = {f.name for f in fields(Link) if f.default is MISSING}
    known = {f.name for f in fields(Link)}
    found: dict[str, Link] = {}
    for kind, table in given.items():
        values = cast("dict[str, object]", table) if isinstance(table, dict) else {}
        named = needed <= values.keys() <= known
        if not named or not all(_fits(v, "float") for v in values.values()):
            wanted = " and ".join(f"`{f.name}`" for f in fields(Link) if f.name in needed)
            also = " and ".join(f"`{name}`" for name in sorted(known - needed))
            message = (
                f"target file `{path}`: `links.{kind}` has {wanted}, and may have {also}: "
                "positive numbers"
            )
            raise FusecError(message)
        found[kind] = Link(**cast("dict[str, float]", values))
    return found


def _clusters(given: object, path: Path) -> dict[int, int]:
    """Return the number of resident clusters by cluster size."""
    counts = cast("dict[str, object]", given) if isinstance(given, dict) else {"": given}
    for blocks, count in counts.items():
        if not blocks.isdecimal() or not _fits(count, "int"):
            raise FusecError(f"target file `{path}`: `clusters` has numbers of blocks and clusters")
    return {int(blocks): cast("int", count) for blocks, count in counts.items()}


def _fits(value: object, kind: str) -> bool:
    if kind == "str":
        return isinstance(value, str)
    allowed = (int,) if kind == "int" else (int, float)
    return isinstance(value, allowed) and not isinstance(value, bool) and 0 < value < inf


class _Targets(Mapping[str, Target]):
    """The known targets by arch, each read on first use."""

    def __getitem__(self, arch: str) -> Target:
        if arch not in ORDER:
            raise KeyError(arch)
        return load(arch)

    def __iter__(self) -> Iterator[str]:
        return iter(ORDER)

    def __len__(self) -> int:
        return len(ORDER)


TARGETS: Mapping[str, Target] = _Targets()


def find(arch: str, folder: Path | None = None) -> Target:
    """Return the target called `arch`, from a file in `folder` if it is there.

    Without a folder FUSEC_TARGETS is used. FusecError lists the known targets.
    """
    if arch not in TARGETS:
        raise FusecError(f"unknown target `{arch}`", help=_meant(arch), code=UNKNOWN_TARGET)
    return load(arch, folder)


def _meant(arch: str) -> str:
    """Return which target a misspelled name or a GPU's name may mean."""
    plain = "".join(c for c in arch.lower() if c.isalnum()).replace("compute", "sm")
    spelled = [name for name in TARGETS if name.replace("_", "") in (plain, f"sm{plain}")]
    devices = {name: load(name, None).device.lower().split()[-1] for name in TARGETS}
    spelled += [name for name, device in devices.items() if device in plain]
    # sm_90a has all of sm_90, and the instructions only Hopper has.
    specific = [f"{name}a" for name in spelled if f"{name}a" in TARGETS]
    if not spelled:
        return "one of " + ", ".join(TARGETS)
    return f"did you mean `{(specific or spelled)[0]}`?"


def nearest(archs: Iterable[str], capability: int) -> Target | None:
    """Return the target among `archs` for a GPU: its own, else the latest it is compatible with.

    That is an earlier one of its generation, without arch-specific features.
    """
    arch = nearest_arch(archs, capability)
    return None if arch is None else TARGETS[arch]


def nearest_arch(archs: Iterable[str], capability: int) -> str | None:
    """Return the name of `nearest`, without reading its file."""
    known = ((capability_of(arch), arch) for arch in archs)
    fitting = (
        (own, arch)
        for own, arch in known
        if own == capability
        or (arch[-1].isdigit() and own // 10 == capability // 10 and own < capability)
    )
    return max(fitting, default=(0, None))[1]


def capability_of(arch: str) -> int:
    """Return the compute capability of a target as a number, 90 for sm_90a."""
    return int(arch.removeprefix("sm_").rstrip("abf"))
