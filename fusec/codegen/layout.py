"""Layout of CUDA source: indentation, lines of at most 100 columns, aligned comments.

Templates need not count columns. The layout of the examples' kernels is that of clang-format in
Google's style with 100 columns and one parameter per line (tests check this).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fusec.escape import c_comment

WIDTH = 100
KERNEL = 'extern "C" __global__'
_COMMENT = re.compile(r"^(?P<code>.*\S)\s+(?P<comment>//.*)$")
_ENDS = (";", "{", "}", ":")
_OPERATORS = (" || ", " && ", " + ", " - ", " * ", " / ")
"""Operators after which a long expression is broken, in order of increasing precedence."""


def laid_out(text: str) -> str:
    """Return the CUDA source of a kernel, formatted."""
    lines = _declared(_indented(text.split("\n")))
    return "\n".join(_without_gaps(filled(lines)))


def filled(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that are already indented, with long ones broken and comments aligned."""
    return _aligned(_wrapped(lines))


def _declared(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield from _declaration(line) if line.startswith(KERNEL) else [line]


def _declaration(code: str) -> list[str]:
    """Return a kernel's declaration on one line if it fits, else with one parameter per line."""
    if len(code) <= WIDTH:
        return [code]
    *_, opened = _top(code, "(")
    end = code.rindex(" ", 0, opened)
    heads, name, indent = [code[:end]], code[end + 1 :], 4
    if len(code[:end]) > WIDTH:
        bounds = code.index("__launch_bounds__")
        heads, indent = [code[: bounds - 1], f"    {code[bounds:end]}"], 8
    if indent + len(name) <= WIDTH:
        return [*heads, " " * indent + name]
    opened = name.index("(") + 1
    first, *rest = _pieces(name[opened:], [k + 1 for k in _top(name[opened:-3], ", ")])
    margin = " " * (indent + opened)
    if max(len(margin + each) for each in (first, *rest)) <= WIDTH:
        return [*heads, f"{' ' * indent}{name[:opened]}{first}", *(margin + each for each in rest)]
    start, below = " " * indent + name[:opened], " " * (indent + 4)
    return [*heads, start, *(below + each for each in (first, *rest))]


def _indented(lines: Iterable[str]) -> Iterator[str]:
    """Write each statement on one line, indented by its braces.

    A statement that contains comments or the body of a lambda keeps its lines.
    """
    depth = 0
    statement: list[str] = []
    code: list[str] = []
    for line in lines:
        bare = line.strip()
        if not statement and (not bare or bare.startswith("#")):
            yield bare
            continue
        if not statement and _is_whole(bare):
            yield " " * (2 * (depth - bare.startswith("}"))) + bare.replace("( ", "(")
            depth += bare.count("{") - bare.count("}")
            continue
        statement.append(line)
        code.append(_code(line))
        if code[-1] and not (code[-1].endswith(_ENDS) and _is_closed(code)):
            continue
        indent = 2 * (depth - code[0].startswith("}"))
        has_body = any(each.endswith(_ENDS) for each in code[:-1])
        if [each.strip() for each in statement] == code and not has_body:
            yield " " * indent + " ".join(code).replace("( ", "(")
        else:
            shift = indent - _margin(statement[0])
            yield from (" " * (_margin(each) + shift) + each.strip() for each in statement)
        depth += sum(each.count("{") - each.count("}") for each in code)
        statement, code = [], []


def _is_whole(line: str) -> bool:
    """Return whether a line is a statement, without a comment."""
    ends = "//" not in line and line.endswith(_ENDS)
    return ends and line.count("(") <= line.count(")")


def _is_closed(code: Iterable[str]) -> bool:
    return sum(each.count("(") - each.count(")") for each in code) <= 0


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _code(line: str) -> str:
    """Return a line without its comment and the space around it."""
    if "//" not in line:
        return line.strip()
    return "" if line.lstrip().startswith("//") else re.sub(r"\s+//.*", "", line).strip()


def _without_gaps(lines: Iterable[str]) -> Iterator[str]:
    """Drop repeated blank lines, and those at the beginning or the end of a block."""
    blank = False
    last = "{"
    for line in lines:
        if not line:
            blank = True
            continue
        if blank and not last.endswith("{") and not line.lstrip().startswith("}"):
            yield ""
        yield line
        blank, last = False, line
    yield ""


def _aligned(lines: Iterable[str]) -> Iterator[str]:
    """Align the trailing comments of consecutive lines."""
    group: list[tuple[str, str]] = []
    for line in [*lines, ""]:
        has_comment = "//" in line and not line.lstrip().startswith("//")
        found = _COMMENT.match(line) if has_comment else None
        if found is not None:
            group.append((found["code"], found["comment"]))
            continue
        if group:
            most = max(len(code) for code, _ in group)
            yield from (f"{code:{most}}  {comment}" for code, comment in group)
            group = []
        yield line


def _wrapped(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if len(line) <= WIDTH or line.startswith("// Source: "):  # a path is copied as a whole
            yield line
        elif line.lstrip().startswith("//"):
            yield from _comment(line)
        else:
            yield from _broken(line) if "//" not in line else [line]


def _comment(line: str) -> Iterator[str]:
    """Break a comment between words; further lines are indented."""
    from textwrap import wrap

    text = line.lstrip()[2:]
    mark = " " * _margin(line) + "//" + " " * _margin(text)
    for part in wrap(text.strip(), WIDTH, initial_indent=mark, subsequent_indent=f"{mark}  "):
        yield c_comment(part)  # none may end with a backslash, which would continue the line


def _broken(line: str) -> list[str]:
    """Return a too long statement broken into several lines."""
    start = len(line) - len(line.lstrip())
    code = line.strip()
    if code.startswith("if ("):
        end = _closing(code, 3) + 1
        head, body = code[:end], code[end:].strip()
        if body not in ("", "{"):
            inner = " " * (start + 2) + body
            return [*_fitting(" " * start + head), *_fitting(inner)]
    places = list(_top(code, " = "))
    if places:
        left, right = code[: places[0] + 2], code[places[0] + 3 :]
        if start + 4 + len(right) <= WIDTH:
            return [" " * start + left, " " * (start + 4) + right]
        first, *rest = _expression(right, start + len(left) + 1, start)
        beside = [f"{' ' * start}{left} {first}", *rest]
        first, *rest = _expression(right, start + 4, start + 4)
        below = [" " * start + left, " " * (start + 4) + first, *rest]
        # Of as many lines, calls that are broken after their parenthesis are the worse ones.
        costs = [
            (*_cost(lines), sum(each.endswith("(") for each in lines)) for lines in (beside, below)
        ]
        return beside if costs[0] <= costs[1] else below
    first, *rest = _expression(code, start, start)
    return [" " * start + first, *rest]


def _cost(lines: list[str]) -> tuple[bool, int]:
    """Return the cost of a layout: whether a line is too long, and the number of lines."""
    return any(len(line) > WIDTH for line in lines), len(lines)


def _fitting(line: str) -> list[str]:
    return [line] if len(line) <= WIDTH else _broken(line)


def _expression(code: str, column: int, indent: int) -> list[str]:
    """Return an expression from `column` on: its first line without margin, the others with it.

    indent: of the line that contains it; arguments that do not fit are indented relative to it.
    """
    if column + len(code) <= WIDTH:
        return [code]
    for question in _top(code, " ? "):
        colon = next(iter(_top(code, " : ")))
        parts = code[:question], code[question + 1 : colon], code[colon + 1 :]
        aside = column + question + 1
        if aside + max(map(len, parts[1:])) <= WIDTH and " ? " not in parts[2]:
            return [f"{parts[0]} {parts[1]}", " " * aside + parts[2]]
        deeper = column + 4
        first, *rest = _expression(parts[0], column, indent)
        for part in parts[1:]:
            head, *tail = _expression(part, deeper, deeper)
            rest += [" " * deeper + head, *tail]
        return [first, *rest]
    for operator in _OPERATORS:
        places = [k + len(operator) for k in _top(code, operator)]
        if places:
            return _filled(_pieces(code, places), column, indent)
    return _call(code, column, indent)


def _call(code: str, column: int, indent: int) -> list[str]:
    """Return a call with its arguments on separate lines as far as they do not fit."""
    opened = min((k for k in (code.find("("), code.find("[")) if k >= 0), default=len(code))
    if opened + 2 >= len(code):
        return [code]
    end = _closing(code, opened)
    inside = code[opened + 1 : end]
    places = [k + 2 for k in _top(inside, "; " if code.startswith("for (") else ", ")]
    pieces = _pieces(inside, places)
    pieces[-1] += code[end:]
    begin = column + opened + 1
    deeper = 4 if len(pieces) > 1 else 0
    first, *rest_below = _filled(pieces, begin, indent, deeper)
    below = [code[: opened + 1] + first, *rest_below]
    first, *rest = _filled(pieces, indent + 4, indent + 4, deeper)
    behind = [code[: opened + 1], " " * (indent + 4) + first, *rest]
    padded = [" " * column + below[0], *rest_below]
    return below if _cost(padded) <= _cost(behind) else behind


def _filled(pieces: list[str], column: int, indent: int, deeper: int = 0) -> list[str]:
    """Return as many pieces per line as fit, all lines starting at `column`.

    deeper: additional indentation of the operands of a piece that is broken between them.
    """
    lines: list[str] = []
    for piece in pieces:
        if lines and column + len(lines[-1]) + 1 + len(piece) <= WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    done: list[str] = []
    for line in lines:
        first, *rest = _expression(line, column, indent)
        if any(next(_top(line.rstrip(","), operator), None) for operator in _OPERATORS):
            rest = [" " * deeper + each for each in rest]
        done += [" " * column + first if done else first, *rest]
    return done


def _pieces(code: str, places: list[int]) -> list[str]:
    """Return the text between positions, without the space before each."""
    ends = [*places, len(code)]
    return [code[a:b].strip() for a, b in zip([0, *places], ends, strict=True)]


def _top(code: str, word: str) -> Iterator[int]:
    """Yield the positions of a word outside of brackets and string literals."""
    if word not in code:
        return
    depth, quoted = 0, False
    for k, letter in enumerate(code):
        quoted ^= letter == '"'
        if quoted:
            continue
        opens = letter in "([{" or (letter == "<" and code[k - 1 : k].strip() != "")
        closes = letter in ")]}" or (letter == ">" and code[k - 1 : k].strip() not in ("", "-"))
        if depth == 0 and code.startswith(word, k):
            yield k
        depth += opens - closes


def _closing(code: str, opened: int) -> int:
    """Return the position of the parenthesis that closes the one at `opened`."""
    depth = 0
    for k in range(opened, len(code)):
        depth += (code[k] in "([{") - (code[k] in ")]}")
        if depth == 0:
            return k
    return len(code) - 1
