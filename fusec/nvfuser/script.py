"""Run a user's Python script with fusec as `nvfuser`, and collect the fusions that it defines."""

from __future__ import annotations

import builtins
import importlib.util
import linecache
import sys
import sysconfig
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from fusec.codes.declarations import NO_OUTPUTS
from fusec.diagnostics import FusecError, Span
from fusec.escape import visible
from fusec.ir.graph import Fusion
from fusec.nvfuser.modules import make_modules
from fusec.parse.dsl import session
from fusec.parse.dsl.execute import NotRun, StopRecording
from fusec.parse.dsl.inputs import Actual
from fusec.parse.dsl.place import is_own, of_frame
from fusec.parse.dsl.ways_out import way_out
from fusec.parse.source import source_of_file
from fusec.parse.torch_modules import EXPORTED, MODULE_CLASS

OnFusion = Callable[[Fusion, "tuple[Actual, ...] | None"], "Sequence[Any] | None"]
"""Receives each fusion that a script executes, with its inputs; returns the outputs, or None if it
only records it. Then, with None for inputs, each fusion that was defined and never executed."""


def run_script(path: str | Path, on_fusion: OnFusion) -> Sequence[Any]:
    """Execute a script and return the definitions that it creates.

    Its own errors become diagnostics that show only the script's lines.
    """
    with session.recording(on_fusion) as made:
        _execute(str(path))
        for definition in made.definitions:
            if definition.executed_as is None and definition.is_complete:
                on_fusion(definition.graph(), None)
        return made.definitions


def load_script(path: str | Path) -> list[Fusion]:
    """Return the fusions that a script defines, with the sizes of their first execution."""
    with session.recording(lambda fusion, actuals: None) as made:
        stopped = _execute(str(path))
        fusions = [d.executed_as or d.graph() for d in made.definitions if d.is_complete]
    if not fusions:
        raise no_fusion(path, made.definitions)
    if stopped is not None:
        print(
            f"note: `{visible(str(path))}` is executed up to line {stopped.line}, which uses "
            "results or a GPU; `fusec run` executes all of it",
            file=sys.stderr,
        )
    return fusions


def no_fusion(path: str | Path, defined: Sequence[Any]) -> FusecError:
    """Return the error for a script without a runnable fusion."""
    if defined:
        return FusecError(
            f"the fusion of `{path}` has no output",
            help="end its definition with `fd.add_output(y)`, one for each result",
            code=NO_OUTPUTS,
        )
    help = "write `with FusionDefinition() as fd: ...` with at least one fd.add_output"
    source = source_of_file(str(path))
    found = MODULE_CLASS.search(source.text)
    if found is not None:
        start, end = source.text.find("class", found.start()), found.end()
        message = "a module of PyTorch is not a definition of a fusion"
        return FusecError(message, span=source.span(start, end), help=EXPORTED)
    return FusecError(f"`{path}` defines no fusion", help=help)


def _execute(name: str) -> Span | None:
    """Execute a script; return where it used results that were never computed, else None."""
    text = source_of_file(name).text
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        code = compile(text, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise _syntax_error(error, name) from None
    module = ModuleType("__main__")
    module.__file__ = name
    module.__dict__["__builtins__"] = _builtins_with_standin()
    with _as_main(module, name):
        try:
            exec(code, module.__dict__)
        except StopRecording as stop:
            return _script_span(stop.__traceback__, name)
        except SystemExit as error:
            if error.code not in (None, 0):
                raise FusecError(f"`{name}` exits with {error.code!r}") from None
        except FusecError as error:
            raise error.at(_script_span(error.__traceback__)) from None
        except Exception as error:
            if not (_is_check_of_nothing(error) or _lacks_cuda(error)):
                raise _script_error(error) from None
            return _script_span(error.__traceback__, name)
    return None


def _builtins_with_standin() -> dict[str, Any]:
    """Return builtins whose `import torch` finds the stand-in if PyTorch is not installed."""
    own = dict(builtins.__dict__)
    if importlib.util.find_spec("torch") is not None:
        return own
    modules: dict[str, ModuleType] = {}

    def import_(name: str, *args: Any, **options: Any) -> Any:
        if name.split(".")[0] != "torch":
            return builtins.__import__(name, *args, **options)
        from fusec.parse import torch_standin

        if not modules:
            _announce_standin()
            modules.update(torch_standin.make_modules())
        wanted = torch_standin.need_known(name, modules)
        names = args[2] if len(args) > 2 else options.get("fromlist")
        return wanted if names else modules["torch"]

    own["__import__"] = import_
    return own


@cache
def _announce_standin() -> None:
    print("torch is not installed: inputs come from fusec's replacement", file=sys.stderr)


@contextmanager
def _as_main(module: ModuleType, name: str) -> Generator[None]:
    """Run the script as `__main__`, with its folder first on the path and fusec as `nvfuser`."""
    given = {
        key: made for key, made in make_modules().items()
        if key.split(".")[0] not in sys.modules and _is_missing(key.split(".")[0])
    }  # fmt: skip
    folder = str(Path(name).resolve().parent)
    argv, main = sys.argv, sys.modules["__main__"]
    sys.argv = [name]
    sys.path.insert(0, folder)
    sys.modules.update({"__main__": module, **given})
    try:
        yield
    finally:
        sys.argv, sys.modules["__main__"] = argv, main
        for key in given:
            sys.modules.pop(key, None)
        if folder in sys.path:
            sys.path.remove(folder)


def _is_missing(name: str) -> bool:
    return importlib.util.find_spec(name) is None


def _is_check_of_nothing(error: Exception) -> bool:
    """Return whether a library rejected a result that was never computed."""
    return NotRun.__name__ in str(error)


NO_CUDA = (
    "not compiled with cuda", "no nvidia driver", "no cuda gpus", "cuda driver version",
    "cuda is not available",
)  # fmt: skip
"""PyTorch's messages where tensors on a GPU are not available."""


def _lacks_cuda(error: Exception) -> bool:
    """Return whether PyTorch could not create a tensor on a GPU because there is none."""
    return any(text in str(error).lower() for text in NO_CUDA)


def _frames(traceback: TracebackType | None) -> Iterator[tuple[CodeType, int, int]]:
    while traceback is not None:
        if not is_own(traceback.tb_frame):
            yield traceback.tb_frame.f_code, traceback.tb_lasti, traceback.tb_lineno
        traceback = traceback.tb_next


def _script_frames(traceback: TracebackType | None) -> list[tuple[Span, str]]:
    """Return the locations in the user's own files, outermost first, with function names."""
    paths = sysconfig.get_paths()
    libraries = {paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")}
    found: list[tuple[Span, str]] = []
    for code, instruction, line in _frames(traceback):
        if code.co_filename.startswith((*libraries, "<frozen")):
            continue
        found.append((of_frame(code, instruction, line).span, code.co_name))
    return found


def _script_span(traceback: TracebackType | None, file: str | None = None) -> Span | None:
    """Return the innermost location in the user's files, in `file` if there is one."""
    places = [span for span, _ in _script_frames(traceback)]
    own = [span for span in places if span.file == file]
    return (own or places or [None])[-1]


def _script_error(error: Exception) -> FusecError:
    frames = _script_frames(error.__traceback__)
    notes = [
        f"called from {span.file}:{span.line}" + ("" if name == "<module>" else f" in {name}")
        for span, name in reversed(frames[:-1])
    ]
    first, *more = str(error).strip().splitlines() or [""]
    return FusecError(
        f"the script raises {type(error).__name__}" + (f": {first}" if first else ""),
        span=frames[-1][0] if frames else None,
        notes=[*more, *notes],
        help=way_out(error, frames[-1][0]) if frames else None,
    )


def _syntax_error(error: SyntaxError, name: str) -> FusecError:
    text = (error.text or "").rstrip("\n")
    column = max(1, error.offset or 1)
    same_line = error.end_lineno == error.lineno and error.end_offset is not None
    width = max(1, (error.end_offset or column) - column) if same_line else 1
    return FusecError(
        f"the script is not valid Python: {error.msg}",
        span=Span(name, error.lineno or 1, column, width, text),
    )
