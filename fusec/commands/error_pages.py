"""`fusec explain E0201`: the meaning of an error code, with an example and its fix."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator

from fusec.codes import CODES
from fusec.codes.code import Code
from fusec.diagnostics import FusecError

_NUMBER = re.compile(r"[Ee]\d+")


def names_code(text: str) -> bool:
    """Return whether an argument is an error code rather than the path of a file."""
    return _NUMBER.fullmatch(text) is not None


def explain_code(number: str, *, as_json: bool) -> int:
    """Print the page of a code; FusecError if there is none."""
    code = CODES.get(number.upper())
    if code is None:
        padded = f"E{number[1:].zfill(4)}"
        if padded in CODES:
            raise FusecError(f"there is no error code {number}", help=f"did you mean `{padded}`?")
        known = f"codes are {min(CODES)} to {max(CODES)}, as in `fusec explain {min(CODES)}`"
        raise FusecError(f"there is no error code {number}", help=f"{known}, see docs/errors.md")
    if as_json:
        sys.stdout.write(json.dumps(_facts(code), indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(_page(code)) + "\n")
    return 0


def _facts(code: Code) -> dict[str, object]:
    return {
        "code": code.number, "title": code.title, "cause": code.cause,
        "wrong": {"file": code.wrong, "arguments": list(code.wrong_arguments)},
        "right": {"file": code.right, "arguments": list(code.right_arguments)},
    }  # fmt: skip


def _page(code: Code) -> Iterator[str]:
    yield f"{code.number}: {code.title}"
    yield f"\n{code.cause}"
    yield "\nWrong:\n"
    yield from _example(code.wrong, code.wrong_arguments)
    yield "\nRight:\n"
    yield from _example(code.right, code.right_arguments)


def _example(text: str, arguments: tuple[str, ...]) -> Iterator[str]:
    if arguments:
        yield f"  $ fusec check example.yaml {shlex.join(arguments)}\n"
    yield from (f"  {line}" for line in text.splitlines())


def errors_page() -> str:
    """Return docs/errors.md: every code in order."""
    parts = [
        "# Error codes: what a message means\n",
        "<!-- Generated from fusec/codes by `python -m fusec.commands.error_pages`. -->\n",
        "Errors of the kinds below print a code, as in `error[E0201]: undefined name`; codes are "
        "never reused.\n`fusec explain E0201` prints one entry.\n",
        *(_section(code) for code in CODES.values()),
    ]
    return "\n".join(parts)


def _section(code: Code) -> str:
    wrong, right = code.wrong.splitlines(), code.right.splitlines()
    lines = [f"## {code.number}: {code.title}\n", f"{code.cause}\n"]
    if code.wrong_arguments:
        lines += ["```sh", f"fusec check example.yaml {shlex.join(code.wrong_arguments)}  # wrong"]
        lines += [f"fusec check example.yaml {shlex.join(code.right_arguments)}  # right", "```\n"]
    else:
        lines += ["```diff", *_differing(wrong, right), "```\n"]
    return "\n".join(lines)


def _differing(wrong: list[str], right: list[str]) -> Iterator[str]:
    """Yield both files as one: `-` before wrong lines, `+` before the lines that fix them."""
    from difflib import ndiff

    yield from (line for line in ndiff(wrong, right) if not line.startswith("?"))


if __name__ == "__main__":
    sys.stdout.write(errors_page())
