"""Look up names of other frameworks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial

from fusec.ops.frameworks import aten, models, numpy_jax, pytorch, unsupported
from fusec.ops.frameworks.entry import NEEDED, Entry, Parameter, read_entry
from fusec.ops.table import TABLE

NAMESPACES = ("torch", "torch.Tensor", "nvfuser", "numpy", "jax", "models", "prims", "aten")
"""The order in which a name without a prefix is looked up, except for the last two."""
_BARE = NAMESPACES[:-2]

PREFIXES: Mapping[str, str] = {
    "torch.nn.functional": "torch", "torch.nn.utils": "torch", "torch.nn": "torch",
    "nn.utils": "torch", "torch.utils.checkpoint": "torch", "torch.special": "torch",
    "torch.linalg": "torch", "np.linalg": "numpy", "numpy.linalg": "numpy",
    "jnp.linalg": "numpy", "linalg": "torch", "LA": "torch", "torch.Tensor": "torch.Tensor",
    "torch.ops.aten": "aten", "torch.ops.prims": "prims", "torch": "torch",
    "nn.functional": "torch", "F": "torch", "special": "torch", "aten": "aten", "prims": "prims",
    "np": "numpy", "numpy": "numpy", "jnp": "numpy", "jax.numpy": "numpy", "jax.nn": "jax",
    "jax.lax": "jax", "lax": "jax", "nn": "jax", "jax": "jax", "fd.ops": "nvfuser",
    "ops": "nvfuser", "math": "numpy",
}  # fmt: skip
"""Module prefixes of names in other frameworks' programs, longest first."""

_LINALG = ("torch.linalg", "np.linalg", "numpy.linalg", "jnp.linalg", "linalg", "LA")
_VECTORS = ("vector_norm", "matmul")
"""Names of torch.linalg with the same meaning as in torch; others are `linalg.norm`."""

_COPY, _IN_PLACE, _EACH = "_copy", "_", "_foreach_"


class _Table(Mapping[str, Entry]):
    """Entries by name, each read when it is looked up."""

    def __init__(self, unread: Mapping[str, Callable[[], Entry]]) -> None:
        self._unread, self._entries = unread, dict[str, Entry]()

    def __getitem__(self, name: str) -> Entry:
        found = self._entries.get(name)
        if found is None:
            found = self._entries[name] = self._unread[name]()
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._unread

    def __iter__(self) -> Iterator[str]:
        return iter(self._unread)

    def __len__(self) -> int:
        return len(self._unread)


@cache
def _table(namespace: str) -> Mapping[str, Entry]:
    """Return the entries of a namespace by name, ATen's by `name.overload`."""
    lines, same, reasons = {
        "torch": (pytorch.LINES, pytorch.SAME, unsupported.UNSUPPORTED),
        "torch.Tensor": (pytorch.METHODS, "", {}),
        "nvfuser": (numpy_jax.NVFUSER, "", {}),
        "numpy": (numpy_jax.NUMPY, numpy_jax.NUMPY_SAME, {}),
        "models": (models.LINES, "", {}),
        "jax": (numpy_jax.JAX, numpy_jax.JAX_SAME, numpy_jax.JAX_UNSUPPORTED),
        "aten": (aten.LINES, "", aten.UNSUPPORTED),
        "prims": (aten.PRIMS, "", {}),
    }[namespace]
    unread: dict[str, Callable[[], Entry]] = {
        word: partial(_same, namespace, word) for word in same.split() if word in TABLE
    }
    for reason, words in reasons.items():
        for word in words.split():
            unread[word] = partial(_unsupported, namespace, word, reason)
    for line in filter(None, lines.replace("\n    ", " ").splitlines()):
        unread[line.partition("(")[0]] = partial(read_entry, namespace, line)
    return _Table(unread)


def _unsupported(namespace: str, word: str, reason: str) -> Entry:
    name, _, overload = word.partition(".")
    return Entry(namespace, name, overload, "unsupported", note=reason)


def _same(namespace: str, name: str) -> Entry:
    op = TABLE[name]
    parameters = tuple(
        Parameter(p.name, NEEDED if not _has_default(p.default) else p.default) for p in op.params
    )
    call = f"{name}({', '.join(p.name for p in op.params)})"
    return Entry(namespace, name, "", "same", parameters, (call,))


def _has_default(default: object) -> bool:
    return default is None or isinstance(default, (bool, int, float, str))


def entries(namespace: str) -> Iterable[Entry]:
    """Return all entries of a namespace."""
    return _table(namespace).values()


def find(namespace: str, name: str, overload: str = "") -> Entry | None:
    """Return the entry of a name, ATen's with its overload; None if fusec does not know it.

    A name that ends in `_copy` is the one without, and one that ends in `_` works in place.
    """
    if namespace in ("aten", "prims"):
        return _table(namespace).get(f"{name}.{overload or 'default'}")
    tables = [_table(namespace)]
    if namespace in ("torch.Tensor", "numpy"):
        tables.append(_table("torch"))
    for table in tables:
        if name in table:
            return table[name]
    if name.startswith(_EACH):
        return find(namespace, name.removeprefix(_EACH))
    if name.endswith(_COPY):
        return find(namespace, name.removesuffix(_COPY))
    plain = name.removesuffix(_IN_PLACE)
    known = None if plain == name or not plain else find(namespace, plain)
    if known is None:
        return None
    if known.kind == "unsupported":
        return known
    return Entry(
        namespace, name, "", "unsupported", known.parameters, known.expressions,
        unsupported.IN_PLACE,
    )  # fmt: skip


def find_bare(name: str) -> Entry | None:
    """Return the entry of a name without a prefix, of the first framework that has it."""
    for namespace in _BARE:
        entry = find(namespace, name)
        if entry is not None and not (entry.kind == "same" and name not in TABLE):
            return entry
    return None


def method_entry(name: str) -> Entry | None:
    """Return the entry of a method of PyTorch's tensors, or of a function of that name."""
    entry = find("torch.Tensor", name)
    if entry is None and name in TABLE:
        return _same("torch", name)
    return entry or find_bare(name)


def find_dotted(name: str) -> Entry | None:
    """Return the entry of a name with a framework's prefix, as `torch.nn.functional.silu`."""
    found = _find_dotted(name)
    module, _, word = name.rpartition(".")
    reason = unsupported.MODULES.get(module)
    if found is not None or reason is None:
        return found
    return Entry(PREFIXES.get(module, "torch"), word, "", "unsupported", note=reason)


def _find_dotted(name: str) -> Entry | None:
    for prefix, namespace in PREFIXES.items():
        rest = name.removeprefix(f"{prefix}.")
        if rest == name:
            continue
        word, _, overload = rest.partition(".")
        if prefix in _LINALG and word not in _VECTORS:
            return _table(namespace).get(f"linalg.{word}")
        if namespace in ("aten", "prims"):
            return find(namespace, word, overload)
        if not overload:
            return find(namespace, word) or (find_bare(word) if namespace != "torch" else None)
    return None


@cache
def aliases() -> Mapping[str, Entry]:
    """Return the names that fusec accepts in addition to its operations'."""
    found: dict[str, Entry] = {}
    for namespace in _BARE:
        for entry in entries(namespace):
            if entry.kind == "alias" and entry.name not in TABLE:
                found.setdefault(entry.name, entry)
    return {name: entry for name, entry in found.items() if find_bare(name) is entry}


def of_operation(name: str) -> Iterator[Entry]:
    """Yield other frameworks' names of an operation, and their equivalents of its own name."""
    for namespace in _BARE:
        for entry in entries(namespace):
            calls = (e.partition("(")[0] == name for e in entry.expressions)
            own = entry.name == name and entry.kind == "other"
            if own or (entry.kind == "alias" and any(calls)):
                yield entry
