"""Errors for calls of a module's layers, `self.norm(x)`: what to write, based on their names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import FusecError
from fusec.ir.graph import Type
from fusec.ops import TABLE
from fusec.ops.frameworks import find_bare
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.rewriting import Rewriting
from fusec.parse.syntax.lines import plain_text
from fusec.parse.syntax.trees import Argument, CallTree, Literal, Name, OpLine, Tree

T = TypeVar("T")
_NORMS = {
    r"(ln|norm|layer_?norm|ln_f)\w*|\w*(layer_?norm|_ln|_norm)": "LayerNorm",
    r"\w*(rms_?norm)\w*": "RMSNorm",
}
_WITH_WEIGHTS = {
    r"\w*(proj|fc|linear|dense|lm_head|qkv|to_[qkv]|gate|up|down)\w*|w\d*|out|head": (
        "Linear", "linear", ("weight", "bias"),
    ),
    r"\w*(emb|wte|wpe)\w*": ("Embedding", "embedding_fwd", ("weight",)),
}  # fmt: skip
_FUNCTIONS = {
    r"act\w*|activation\w*|\w*_act|nonlin\w*": "gelu", r"\w*drop\w*": "dropout",
}  # fmt: skip
"""Patterns for names of layers in models, and their modules."""
_SECOND = {"dropout": 0.5, "softmax": -1, "log_softmax": -1}
"""Arguments that layers take when they are created, and functions as the second argument."""
_HELP = "weights of a module are inputs, and its layers operations"


@dataclass
class _Found:
    """The layers of a line: the possible functions of each, and the line's requirements."""

    kinds: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    missing: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])


class LayerCalls(Rewriting):
    """Suggests the line to write for calls of layers."""

    def of_layer(self, tree: CallTree, error: FusecError) -> FusecError:
        """Return the error of `self.fc(x)` with a suggested line, based on the names of layers."""
        found = _Found()
        line = self.line or OpLine((Name("y", tree.start, tree.start),), tree)
        made = self._with_layers(line.tree, found)
        unknown = " and ".join(f"`{text}`" for text in dict.fromkeys(found.unknown))
        if not found.kinds:
            help = (
                f"{_HELP}: write the lines of its `forward` above, and their result for {unknown}"
            )
            return error.changed(help=help)
        written = self._lines_text(replace(line, tree=self._rewritten(made, {})))
        kinds = [*dict.fromkeys(found.kinds)]
        whose = [f"`{n}`" for n, _ in kinds] if len(kinds) > 1 or unknown else ["it"]
        told = " and ".join(f"{w} is {k}" for w, (_, k) in zip(whose, kinds, strict=True))
        help = f"{_HELP}: if {told}, write {written}"
        if found.missing:
            help += f", and declare {', '.join(dict.fromkeys(found.missing))} under `inputs:`"
        if unknown:
            help += f"; write the lines of the forward of {unknown} above"
        return error.changed(help=help)

    def _with_layers(self, tree: Tree, found: _Found) -> Tree:
        """Return an expression with calls of functions instead of layers."""
        made = frameworks.rebuilt(
            tree, [self._with_layers(p, found) for p in frameworks.parts_of(tree)]
        )
        is_layer = isinstance(tree, CallTree) and tree.name.text.startswith("self.")
        if not is_layer or not isinstance(tree, CallTree) or not isinstance(made, CallTree):
            return made
        name = tree.name.text.rpartition(".")[2]
        type = self._type_of(tree.arguments[0].value) if tree.arguments else None
        norm = _named(_NORMS, name)
        if norm is not None:
            norm = "RMSNorm" if "rms" in name.lower() else norm
            called = self._normed(norm, made, type)
            if called is not None:
                found.kinds.append((name, f"a {norm}"))
                return called
        weighted = _named(_WITH_WEIGHTS, name) if norm is None else None
        if weighted is not None and len(made.arguments) == 1:
            module, function, words = weighted
            names = self._weights(name, words, type, found, module)
            found.kinds.append((name, f"{'an' if module[0] == 'E' else 'a'} {module}"))
            arguments = (*made.arguments, *(Argument(None, n) for n in names))
            return replace(made, name=replace(made.name, text=function), arguments=arguments)
        function = _named(_FUNCTIONS, name) or name
        if norm is None and (function in TABLE or find_bare(function) is not None):
            found.kinds.append((name, f"`{function}`"))
            made = replace(made, name=replace(made.name, text=function))
            if function in _SECOND and len(made.arguments) == 1:
                second = Argument(None, Literal(_SECOND[function], tree.start, tree.start))
                made = replace(made, arguments=(*made.arguments, second))
            return made
        found.unknown.append(plain_text(tree))
        return made

    def _weights(
        self, layer: str, words: Sequence[str], type: Type | None, found: _Found, module: str
    ) -> list[Name]:
        """Return the names of a layer's weights; those to declare are added to `found`."""
        dtype = type.dtype if type is not None and type.dtype.is_float else "f32"
        shape = () if type is None else type.shape or ()
        last = f"{shape[-1]}" if shape else "N" if found.missing else "K"
        out = "N" if shape else "M"
        shapes = {"weight": f"[{out}, {last}]", "bias": f"[{out}]"}
        if module == "Embedding":
            shapes = {"weight": "[V, H]"}
        names: list[Name] = []
        for word in words:
            known = (f"{layer}_{word}", f"{layer}_{word[0]}", f"{word[0]}_{layer}")
            own = next((n for n in known if self._scope.knows(n)), None)
            names.append(Name(own or known[1], 0, 0))
            if own is None:
                found.missing.append(f"`{known[1]}: {dtype}{shapes[word]}`")
        return names

    def _normed(self, module: str, tree: CallTree, type: Type | None) -> Tree | None:
        """Return the function of a norm with the inputs that have the shapes of its weights."""
        values = [a.value for a in tree.arguments]
        if type is None or not type.shape or len(values) != 1:
            return None
        at = tree.start
        last = frameworks.size_tree(type.shape[-1], tree)
        made = CallTree(Name(module, at, at), (Argument(None, last),), at, tree.end)
        arguments = (Argument(None, made), Argument(None, values[0]))
        with contextlib.suppress(FusecError):
            return self._pasted.layer(CallTree(Name("()", at, at), arguments, at, tree.end))
        return None


def _named(forms: Mapping[str, T], name: str) -> T | None:
    return next((m for form, m in forms.items() if re.fullmatch(form, name)), None)
