"""Digests of templates, whose contents determine what a record of parameters means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256

DIGITS = 12


def digests(templates: Iterable[str]) -> dict[str, str]:
    """Return the digests of templates by name, sorted."""
    return {name: digest(name) or "" for name in sorted(set(templates))}


def are_current(templates: Mapping[str, str]) -> bool:
    """Return whether templates are unchanged since their digests were taken."""
    return all(digest(name) == taken for name, taken in templates.items())


@cache
def digest(template: str) -> str | None:
    """Return the digest of a template and its imports; None if it does not exist."""
    from importlib.resources import files

    folder = files("fusec").joinpath("templates")
    try:
        return digest_of(template, lambda name: folder.joinpath(name).read_text(encoding="utf-8"))
    except OSError:
        return None


def digest_of(template: str, read: Callable[[str], str]) -> str:
    """Return the digest of a template and its imports; read: returns a file's text."""
    texts: dict[str, str] = {}
    wanted = [f"{template}.cu.j2"]
    while wanted:
        name = wanted.pop()
        if name not in texts:
            texts[name] = read(name)
            wanted += _imported(texts[name])
    whole = "".join(f"{name}\n{text}" for name, text in sorted(texts.items()))
    return sha256(whole.encode()).hexdigest()[:DIGITS]


def _imported(text: str) -> Iterator[str]:
    """Yield the templates that a template imports or includes, by Jinja's own parser."""
    from jinja2 import Environment
    from jinja2.meta import find_referenced_templates

    for name in find_referenced_templates(Environment(autoescape=False).parse(text)):
        assert name is not None, "a template imports another by a computed name"
        yield name
