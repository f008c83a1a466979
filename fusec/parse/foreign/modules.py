"""Calls of PyTorch's modules in op lines, `nn.ReLU()(x)`, as calls of their functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from fusec.codes.document import UNEXPECTED_TOKEN
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, Span
from fusec.ir.graph import Type, Value
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.repeated import folded_sizes
from fusec.parse.syntax.expressions import CALLED
from fusec.parse.syntax.trees import Argument, CallTree, Items, Literal, Name, Tree, integer_literal


@dataclass(frozen=True)
class _Module:
    """A module with weights: its function, parameters, and the sizes of its weight and bias."""

    function: str
    parameters: tuple[str, ...]
    weight: tuple[str, ...]
    bias: tuple[str, ...] = ()


_WITH_WEIGHTS: Mapping[str, _Module] = {
    "Linear": _Module(
        "linear", ("in_features", "out_features", "bias"),
        ("out_features", "in_features"), ("out_features",),
    ),
    "LayerNorm": _Module(
        "layer_norm", ("normalized_shape", "eps", "elementwise_affine", "bias"),
        ("normalized_shape",), ("normalized_shape",),
    ),
    "RMSNorm": _Module(
        "rms_norm", ("normalized_shape", "eps", "elementwise_affine"), ("normalized_shape",),
    ),
    "GroupNorm": _Module(
        "group_norm", ("num_groups", "num_channels", "eps", "affine"),
        ("num_channels",), ("num_channels",),
    ),
    "Embedding": _Module(
        "embedding_fwd", ("num_embeddings", "embedding_dim", "padding_idx"),
        ("num_embeddings", "embedding_dim"),
    ),
}  # fmt: skip
MOST_NAMES = 100
_CALLED = {
    "w": "(?i)(^|_)w|weight|gamma", "b": "(?i)(^|_)b|bias|beta", "table": "(?i)emb|table|wte|wpe",
}  # fmt: skip
"""Patterns for the names of inputs that are weights, biases and embedding tables."""
_IGNORED = ("device", "dtype", "inplace")
"""Arguments of modules that have no effect in a fusion."""
FUNCTIONALS = {
    "ReLU": "F.relu", "ReLU6": "F.relu6", "SiLU": "F.silu", "GELU": "F.gelu", "ELU": "F.elu",
    "SELU": "F.selu", "CELU": "F.celu", "Mish": "F.mish", "Sigmoid": "F.sigmoid",
    "Tanh": "F.tanh", "Softplus": "F.softplus", "LeakyReLU": "F.leaky_relu", "GLU": "F.glu",
    "Hardswish": "F.hardswish", "Hardsigmoid": "F.hardsigmoid", "LogSigmoid": "F.logsigmoid",
    "Softmax": "F.softmax", "LogSoftmax": "F.log_softmax", "Softmin": "F.softmin",
    "Dropout": "F.dropout", "MSELoss": "F.mse_loss", "L1Loss": "F.l1_loss",
    "SmoothL1Loss": "F.smooth_l1_loss", "HuberLoss": "F.huber_loss", "NLLLoss": "F.nll_loss",
    "CrossEntropyLoss": "F.cross_entropy", "BCELoss": "F.binary_cross_entropy",
    "BCEWithLogitsLoss": "F.binary_cross_entropy_with_logits", "KLDivLoss": "F.kl_div",
    "Flatten": "torch.flatten",
}  # fmt: skip
"""PyTorch's modules without weights, and their functions, which take the same arguments last."""


class Modules:
    """Finds functions for modules, and inputs for their weights."""

    def __init__(
        self,
        value_of: Callable[[Tree], Value | None],
        type_of: Callable[[Tree], Type | None],
        span: Callable[[Tree], Span],
        inputs: Sequence[Value],
        hints: Callable[[], Mapping[str, int]],
    ) -> None:
        """Look up values of names with `value_of`, and types of expressions with `type_of`.

        hints: returns the default sizes of dims.
        """
        self._value, self._type_of, self._span = value_of, type_of, span
        self._inputs, self._hints = inputs, hints
        self.missing: list[str] = []
        """Further requirements of calls: inputs to declare."""
        self._weights: dict[tuple[int, int], list[str]] = {}

    def begin(self) -> None:
        """Start another line: its modules have inputs of their own, and none is missing yet."""
        self.missing, self._weights = [], {}

    def call(self, tree: CallTree, *, declares: bool = True) -> Tree:
        """Return a call of a module as one of its function; FusecError for other calls of results.

        declares: if no input fits a bias, declare one instead of omitting it.
        """
        inner, *given = (a.value for a in tree.arguments)
        assert isinstance(inner, CallTree)
        x = given[0] if given else None
        module = inner.name.text.rpartition(".")[2]
        made = None
        if x is not None and module == "Sequential" and inner.arguments:
            made = _one_after_another([a.value for a in inner.arguments], x, tree)
        elif x is not None and module in _WITH_WEIGHTS:
            made = self._with_weights(_WITH_WEIGHTS[module], inner, x, declares=declares)
        elif module in FUNCTIONALS and given:
            name = Name(FUNCTIONALS[module], tree.start, tree.start)
            words = [a for a in inner.arguments if not a.keyword or a.keyword.text != "inplace"]
            made = CallTree(name, (*tree.arguments[1:], *words), tree.start, tree.end)
        if made is None:
            raise FusecError(
                "expected nothing after the call, found `(`",
                span=self._span(Name("(", inner.end, inner.end + 1)),
                help="functions are called, not modules or results: `relu(x)`, `linear(x, w, b)`",
                code=UNEXPECTED_TOKEN,
            )
        return made

    def _with_weights(
        self, module: _Module, inner: CallTree, x: Tree, *, declares: bool
    ) -> CallTree | None:
        """Return the call of a module's function with the inputs that have its weights' shapes."""
        own, itself = self._type_of(x), self._value(x)
        given = _arguments(module, inner)
        if given is None:
            return None
        sizes = self._sizes(given, own, inner)
        known_names = self._weights.get((inner.start, inner.end), [])
        others = [
            n
            for key, used in self._weights.items()
            if key != (inner.start, inner.end)
            for n in used
        ]
        names: list[str] = []
        affine = not any(_is_false(given.get(word)) for word in ("affine", "elementwise_affine"))
        wanted = [("w", module.weight)] if affine else []
        if affine and module.bias and not _is_false(given.get("bias")):
            wanted.append(("b", module.bias))
        for name, words in wanted:
            trees = [size for word in words for size in sizes.get(word, ())]
            numbers = [self._number(size) for size in trees]
            if not trees or None in numbers:
                return None
            known = [n for n in numbers if n is not None]
            taken = [*others, *names, *([] if itself is None else [itself.name])]
            kind = "table" if module.function == "embedding_fwd" else name
            found = self._input_of(known, own, taken, kind)
            if found is None and name == "b" and not declares:
                break
            before = known_names[len(names)] if len(names) < len(known_names) else None
            names.append(before or found or self._declared(name, trees, own, others))
        self._weights[inner.start, inner.end] = names
        at = inner.start
        arguments = [Argument(None, x)]
        if "num_groups" in given:
            arguments.append(Argument(None, given["num_groups"]))
        if "normalized_shape" in given:
            arguments.append(Argument(None, Items(tuple(sizes["normalized_shape"]), at, at)))
        arguments += [Argument(None, Name(name, at, at)) for name in names]
        eps = given.get("eps")
        if eps is not None and not (isinstance(eps, Literal) and eps.value is None):
            arguments.append(Argument(Name("eps", at, at), eps))
        return CallTree(Name(module.function, at, at), tuple(arguments), at, inner.end)

    def _sizes(
        self, given: Mapping[str, Tree], own: Type | None, at: Tree
    ) -> Mapping[str, Sequence[Tree]]:
        """Return the sizes given by arguments, spelled as the input's dims where equal."""
        sizes = {word: [*t.items] if isinstance(t, Items) else [t] for word, t in given.items()}
        shape = () if own is None else own.shape or ()
        for word, listed in sizes.items():
            if word in ("normalized_shape", "in_features") and len(listed) <= len(shape):
                last = shape[len(shape) - len(listed) :]
                sizes[word] = [frameworks.size_tree(size, at) for size in last]
            elif word == "num_channels" and len(shape) > 1:
                sizes[word] = [frameworks.size_tree(shape[1], at)]
        return sizes

    def _declared(
        self, name: str, sizes: Sequence[Tree], like: Type | None, taken: Sequence[str]
    ) -> str:
        """Return the name of an input that the file lacks, and request its declaration."""
        free = (name, *(f"{name}_{k}" for k in range(2, MOST_NAMES)))
        name = next(n for n in free if self._value(Name(n, 0, 0)) is None and n not in taken)
        if like is not None:
            dtype = like.dtype if like.dtype.is_float else "f32"
            shape = ", ".join(frameworks.text_of(size, {}) for size in sizes)
            self.missing.append(f"declare `{name}: {dtype}[{shape}]` under `inputs:`")
        return name

    def _number(self, size: Tree) -> int | None:
        """Return a size as a number, using the defaults of dims."""
        known = {n: Literal(k, size.start, size.end) for n, k in self._hints().items()}
        return integer_literal(folded_sizes(frameworks.substituted(size, known, size)))

    def _input_of(
        self, shape: Sequence[int], like: Type | None, taken: Sequence[str], kind: str
    ) -> str | None:
        """Return the input with this shape at the default sizes, and the dtype of another input.

        kind: a word of `_CALLED`: of several inputs, the one whose name matches it.
        """
        sizes, found = self._hints(), list[str]()
        for value in self._inputs:
            own = [e.evaluate(sizes) for e in value.shape] if value.type.shape else []
            same_type = like is None or not like.dtype.is_float or value.dtype == like.dtype
            if own == list(shape) and same_type and value.name not in taken:
                found.append(value.name)
        other = [form for word, form in _CALLED.items() if word != kind]

        def fits(name: str) -> bool:
            return bool(re.search(_CALLED[kind], name))

        possible = [n for n in found if fits(n) or not any(re.search(form, n) for form in other)]
        return max(possible, key=fits, default=None)


def _one_after_another(layers: Sequence[Tree], x: Tree, at: Tree) -> Tree:
    """Return `nn.Sequential(a, b)(x)` as `b(a(x))`."""
    for layer in layers:
        name = Name(CALLED, at.start, at.start)
        x = CallTree(name, (Argument(None, layer), Argument(None, x)), at.start, at.end)
    return x


def _arguments(module: _Module, call: CallTree) -> Mapping[str, Tree] | None:
    """Return a module's arguments by their names; None for unsupported ones."""
    plain = [a.value for a in call.arguments if a.keyword is None]
    given = dict(zip(module.parameters, plain, strict=False))
    words = {a.keyword.text: a.value for a in call.arguments if a.keyword is not None}
    given |= {word: value for word, value in words.items() if word not in _IGNORED}
    return given if given.keys() <= {*module.parameters} and len(plain) <= len(given) else None


def _is_false(tree: Tree | None) -> bool:
    return isinstance(tree, Literal) and tree.value is False
