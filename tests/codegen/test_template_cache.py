"""Compiled templates on disk: loaded where nothing has changed, compiled again where it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2 import DictLoader, Environment

from fusec.codegen import template_cache
from fusec.codegen.template_cache import TemplateCache

COMPILED: list[str] = []


class Counting(Environment):
    """Notes each template that it compiles."""

    def _generate(self, source: Any, name: Any, filename: Any, defer_init: bool = False) -> Any:
        COMPILED.append(name)
        return super()._generate(source, name, filename, defer_init)


def rendered(folder: Path, text: str, **settings: Any) -> str:
    """Return a template's text, in an environment of its own."""
    cache = TemplateCache(str(folder), settings)
    made = Counting(
        loader=DictLoader({"t": text}), bytecode_cache=cache, autoescape=False, **settings
    )
    return made.get_template("t").render(x=3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(template_cache.sys, "dont_write_bytecode", False)
    monkeypatch.setattr(template_cache.sys, "pycache_prefix", None)
    COMPILED.clear()
    return tmp_path


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("__pycache__/*"))


def test_a_template_is_compiled_once(folder: Path) -> None:
    assert [rendered(folder, "{{ x }}!") for _ in range(3)] == ["3!"] * 3
    assert COMPILED == ["t"]
    assert len(files(folder)) == 1


def test_another_text_or_setting_is_compiled(folder: Path) -> None:
    text = "{% if x %}\n{{ x }}\n{% endif %}\n"
    plain = rendered(folder, text)
    assert rendered(folder, text, trim_blocks=True) == plain.lstrip()
    assert rendered(folder, text.replace("x }}", "x + 1 }}")).strip() == "4"
    assert rendered(folder, text) == plain
    assert len(COMPILED) == 4  # of one name and one setting, the last text is kept


@pytest.mark.parametrize("damage", [b"", b"j2", None])
def test_a_damaged_file_is_compiled_again(folder: Path, damage: bytes | None) -> None:
    rendered(folder, "{{ x }}")
    (path,) = files(folder)
    path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    assert rendered(folder, "{{ x }}") == "3"
    assert len(COMPILED) == 2


def test_nothing_is_written_where_byte_code_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_cache.sys, "dont_write_bytecode", True)
    assert rendered(folder, "{{ x }}") == "3"
    assert not files(folder)


def test_a_folder_that_cannot_be_written_changes_nothing(folder: Path) -> None:
    (folder / "__pycache__").write_text("a file")
    assert [rendered(folder, "{{ x }}") for _ in range(2)] == ["3", "3"]
