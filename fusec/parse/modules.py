"""Calls of PyTorch's modules in op lines, `nn.ReLU()(x)`, as calls of their functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusec.codes.document import UNEXPECTED_TOKEN
from fusec.diagnostics import FusecError, Span
from fusec.ir.graph import Value
from fusec.parse import frameworks
from fusec.parse.repeated import folded_sizes
from fusec.parse.trees import Argument, CallTree, Items, Literal, Name, Tree, integer_literal

_WEIGHTS: Mapping[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "Linear": ("linear", ((1, 0), (1,))),
    "LayerNorm": ("layer_norm", ((0,), (0,))),
    "RMSNorm": ("rms_norm", ((0,),)),
    "Embedding": ("embedding_fwd", ((0, 1),)),
}
"""Modules with weights: their functions, and the shapes of weight and bias by arguments."""
_FUNCTIONALS = {
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
        span: Callable[[Tree], Span],
        inputs: Sequence[Value],
        hints: Callable[[], Mapping[str, int]],
    ) -> None:
        """Ask `value_of` for what names stand for; hints: returns the default sizes of dims."""
        self._value, self._span, self._inputs, self._hints = value_of, span, inputs, hints
        self.missing: list[str] = []
        """What calls need besides: inputs to declare."""

    def call(self, tree: CallTree) -> Tree:
        """Return a call of a module as one of its function; FusecError of other results."""
        inner, x = (a.value for a in tree.arguments[:2])
        assert isinstance(inner, CallTree)
        module = inner.name.text.rpartition(".")[2]
        made = None
        if isinstance(x, Name) and module in _WEIGHTS:
            made = self._with_weights(module, inner, x)
        elif module in _FUNCTIONALS:
            name = Name(_FUNCTIONALS[module], tree.start, tree.start)
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

    def _with_weights(self, module: str, inner: CallTree, x: Name) -> CallTree | None:
        """Return the call of a module's function with the inputs that have its weights' shapes."""
        function, shapes = _WEIGHTS[module]
        sizes = [a.value for a in inner.arguments if a.keyword is None]
        wanted: list[list[int]] = []
        for places in shapes:
            listed = [sizes[k] for k in places if k < len(sizes)]
            numbers = [self._number(s) for s in listed]
            if len(numbers) < len(places) or None in numbers:
                return None
            wanted.append([n for n in numbers if n is not None])
        has_bias = not any(
            a.keyword and a.keyword.text in ("bias", "elementwise_affine")
            and isinstance(a.value, Literal) and not a.value.value
            for a in inner.arguments
        )  # fmt: skip
        own = self._value(x)
        names: list[str] = []
        for shape, name in zip(wanted, ("w", "b"), strict=False):
            if name == "b" and not has_bias:
                break
            found = self._input_of(shape, own, names)
            if found is None and name == "b":
                break
            if found is None and own is not None:
                text = ", ".join(map(str, shape))
                self.missing.append(f"declare `{name}: {own.dtype}[{text}]` under `inputs:`")
            names.append(found or name)
        at = inner.start
        weights = [Argument(None, Name(name, at, at)) for name in names]
        given = [Argument(None, x), *weights]
        if module in ("LayerNorm", "RMSNorm"):
            size = Literal(wanted[0][0], at, at)
            shape = () if own is None else own.shape
            last = size if not shape else frameworks.size_tree(shape[-1], inner)
            given.insert(1, Argument(None, Items((last,), at, at)))
        return CallTree(Name(function, at, at), tuple(given), at, inner.end)

    def _number(self, size: Tree) -> int | None:
        """Return a size as a number, of dims the default."""
        if isinstance(size, Items) and len(size.items) == 1:
            size = size.items[0]
        if isinstance(size, Name):
            return self._hints().get(size.text)
        return integer_literal(folded_sizes(size))

    def _input_of(
        self, shape: Sequence[int], like: Value | None, taken: Sequence[str]
    ) -> str | None:
        """Return the input that has a shape at the default sizes, and the type of another one."""
        sizes = self._hints()
        for value in self._inputs:
            own = [e.evaluate(sizes) for e in value.shape] if value.type.shape else []
            same_type = like is None or not like.dtype.is_float or value.dtype == like.dtype
            if own == list(shape) and same_type and value.name not in taken and value is not like:
                return value.name
        return None
