"""Dataclasses of `fusec.dataclasses` are those of the standard library, and load sooner."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from draws import drawn
from hypothesis import given
from hypothesis import strategies as st
from package_trees import FILES, PACKAGE, tree_of

from fusec.dataclasses import COMPILE_AT, dataclass, field, fields, replace

Spec = tuple[str, dict[str, Any]]

VALUES = st.one_of(st.integers(0, 2), st.sampled_from(["a", "b"]), st.tuples(st.integers(0, 1)))
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "repr": st.booleans(), "compare": st.booleans(), "kw_only": st.booleans(),
        "hash": st.sampled_from([None, False]),
    },
)  # fmt: skip


def _field(options: dict[str, Any], default: Any, kind: str) -> Any:
    if kind == "factory":
        return field(default_factory=lambda: default, **options)
    return field(**options) if kind == "required" else field(default=default, **options)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, tuple[dict[str, Any], Any, str]]:
    """Draw the fields of a class: options, a default, and how it is given."""
    kinds = st.sampled_from(["required", "default", "factory"])
    count = draw(st.integers(0, 4))
    found = {f"f{k}": (draw(OPTIONS), draw(VALUES), draw(kinds)) for k in range(count)}
    if draw(st.booleans()) and found:
        found["shown"] = ({"init": False}, draw(VALUES), draw(st.sampled_from(["factory"])))
    return found


def made(
    decorate: Callable[..., Any],
    bodies: list[dict[str, tuple[dict[str, Any], Any, str]]],
    options: dict[str, bool],
) -> Any:
    """Return a class whose bases have some of its fields, or None where there is none."""
    kind: Any = object
    try:
        for level, body in enumerate(bodies):
            renamed = {f"{name}_{level}": about for name, about in body.items()}
            inner: dict[str, Any] = {n: _field(*about) for n, about in renamed.items()}
            inner["__annotations__"] = dict.fromkeys(renamed, "object")
            inner["__doc__"] = "A class."
            inner["twice"] = property(lambda self: repr(self) * 2)
            kind = decorate(**options)(type("Drawn", (kind,), inner))
    except TypeError:
        return None
    return kind


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or the kind of its error."""
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error)


@drawn(200)
@given(
    st.lists(bodies(), min_size=1, max_size=2),
    st.fixed_dictionaries({"frozen": st.booleans(), "eq": st.booleans(), "kw_only": st.booleans()}),
    st.integers(1, 4),
    st.data(),
)
def test_drawn_classes_do_what_standard_ones_do(
    bodies: list[dict[str, Any]], options: dict[str, bool], compile_at: int, data: st.DataObject
) -> None:
    with patch("fusec.dataclasses.COMPILE_AT", compile_at):
        check_drawn(bodies, options, data)


def check_drawn(
    bodies: list[dict[str, Any]], options: dict[str, bool], data: st.DataObject
) -> None:
    """Compare classes of drawn fields, and what instances of them do."""
    ours, standard = (made(d, bodies, options) for d in (dataclass, dataclasses.dataclass))
    if standard is None:
        return  # a field without a default follows one with: a type checker's affair
    assert ours is not None
    assert [f.name for f in fields(ours)] == [f.name for f in fields(standard)]
    names = [f.name for f in fields(ours) if f.init]
    calls = []
    for _ in range(3):
        given = data.draw(st.lists(VALUES, max_size=len(names)))
        named = data.draw(st.dictionaries(st.sampled_from([*names, "other"]), VALUES, max_size=3))
        calls.append((given, named))
    results = [
        [outcome(lambda k=kind, g=g, n=n: k(*g, **n)) for g, n in calls]
        for kind in (ours, standard)
    ]
    for mine, other in zip(*results, strict=True):
        assert (mine is TypeError) == (other is TypeError)
    mine, other = ([r for r in found if r is not TypeError] for found in results)
    assert [repr(r) for r in mine] == [repr(r) for r in other]
    assert [r.twice for r in mine] == [r.twice for r in other]
    for compare in (
        lambda a, b: a == b,
        lambda a, b: outcome(lambda: {a, b} == {a}),
        lambda a, b: [vars(a), vars(b)],
        lambda a, b: outcome(lambda: vars(replace(a, **{names[0]: 7})) if names else 0),
        lambda a, b: outcome(lambda: setattr(a, names[0] if names else "x", 1)),
        lambda a, b: outcome(lambda: delattr(b, names[-1] if names else "x")),
        lambda a, b: vars(copy.copy(a)),
    ):
        assert [compare(a, b) for a in mine for b in mine] == [
            compare(a, b) for a in other for b in other
        ]


@dataclass(frozen=True)
class Point:
    """A record of its own module, for copies through bytes."""

    x: int
    y: int = 2

    def __post_init__(self) -> None:
        """Refuse what is negative."""
        if self.x < 0:
            raise ValueError(self.x)


@dataclass
class Named:
    """A class with methods of its own."""

    name: str

    def __eq__(self, other: object) -> bool:
        """Compare with names."""
        return other == self.name

    def __hash__(self) -> int:
        """Hash as names do."""
        return hash(self.name)

    def __repr__(self) -> str:
        """Show the name."""
        return self.name


def test_what_a_class_does_after_it_is_made() -> None:
    assert pickle.loads(pickle.dumps(Point(1))) == Point(1, 2)
    assert Point(1) != (1, 2)
    with pytest.raises(ValueError, match="-1"):
        Point(-1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="x"):
        Point(1).x = 3  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required .*'x'"):
        Point()  # pyright: ignore[reportCallIssue]
    match Point(3, 4):
        case Point(3, y):
            assert y == 4
        case _:
            raise AssertionError


def test_a_class_keeps_its_own_methods() -> None:
    assert Named("a") == "a"
    assert {Named("a"), "a"} == {"a"}
    assert repr(Named("a")) == "a"


def test_a_record_that_holds_itself_is_shown() -> None:
    @dataclass
    class Ring:
        inner: list[Any]

    ring = Ring([])
    ring.inner.append(ring)
    assert repr(ring).endswith("Ring(inner=[...])")


def test_only_classes_with_many_instances_have_compiled_methods() -> None:
    """Compiling is calling `exec` with text."""
    texts: list[str] = []
    run = exec

    def compiled(text: Any, *names: Any) -> None:
        texts.append(text)
        run(text, *names)

    with patch("builtins.exec", compiled):

        @dataclass(frozen=True)
        class One:
            x: int = 0

        assert texts == []
        assert One() == One(0)
        assert repr(One()).endswith("One(x=0)")
        assert len({One(), One(1)}) == 2
        assert texts == []
        assert {One(k) for k in range(COMPILE_AT)} == {One(k) for k in range(COMPILE_AT)}
        assert len(texts) == 1


def test_fields_that_are_not_supported_are_refused() -> None:
    with pytest.raises(TypeError, match=r"First\.x: .*InitVar"):

        @dataclass
        class First:
            x: dataclasses.InitVar[int]

    with pytest.raises(ValueError, match=r"mutable default of .*Second\.x"):

        @dataclass
        class Second:
            x: list[int] = []  # noqa: RUF012


def test_attributes_of_a_class_are_no_fields() -> None:
    @dataclass
    class One:
        kind: ClassVar[str] = "one"
        x: int = 0

    assert [f.name for f in fields(One)] == ["x"]
    assert (One.kind, One.x, One.__match_args__) == ("one", 0, ("x",))


OWN = {"dataclasses.py", "call/arrays.py"}
"""What has reasons of its own: the decorator itself, and a class with slots."""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_classes_are_made_by_the_decorator_of_the_package(path: Any) -> None:
    if str(path.relative_to(PACKAGE)) not in OWN:
        imported = [
            alias.name
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
            for alias in node.names
        ]
        assert "dataclass" not in imported, "import it from fusec.dataclasses: modules load sooner"
