"""Methods of `torch.distributions` for fusec: the formula of a density or an entropy."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.parse.foreign import frameworks
from fusec.parse.syntax.trees import CallTree, Tree

_Form = tuple[tuple[str, ...], str, str]
_FORMS: Mapping[str, tuple[_Form, ...]] = {
    "Normal": ((
        ("loc", "scale"),
        "-0.5 * ((value - loc) / scale) ** 2 - log(scale) - 0.9189385332046727",
        "log(scale) + 1.4189385332046727",
    ),),
    "Categorical": (
        (
            ("logits",),
            "squeeze(gather(log_softmax(logits, -1), unsqueeze(value, -1), -1), [-1])",
            "-sum(softmax(logits, -1) * log_softmax(logits, -1), [-1])",
        ),
        (
            ("probs",),
            "squeeze(gather(log(probs / sum(probs, [-1], true)), unsqueeze(value, -1), -1), [-1])",
            "-sum(probs / sum(probs, [-1], true) * log(probs / sum(probs, [-1], true)), [-1])",
        ),
    ),
    "Bernoulli": (
        (
            ("logits",),
            "-binary_cross_entropy_with_logits(logits, value, reduction=none)",
            "binary_cross_entropy_with_logits(logits, sigmoid(logits), reduction=none)",
        ),
        (
            ("probs",),
            "-binary_cross_entropy(probs, value, reduction=none)",
            "binary_cross_entropy(probs, probs, reduction=none)",
        ),
    ),
    "Exponential": ((("rate",), "log(rate) - rate * value", "1 - log(rate)"),),
    "Laplace": ((
        ("loc", "scale"),
        "-log(2 * scale) - abs(value - loc) / scale",
        "1 + log(2 * scale)",
    ),),
}  # fmt: skip
"""Distributions by their parameters: the logarithm of the density at `value`, and the entropy."""
_FIRST = {"Categorical": "probs", "Bernoulli": "probs"}
"""The parameter for a single argument without a keyword."""


def density(tree: CallTree) -> Tree | None:
    """Return the formula of `Normal(loc, scale).log_prob(x)` or `.entropy()`; None for others."""
    made = tree.arguments[0].value if tree.arguments else None
    if not isinstance(made, CallTree):
        return None
    name, method = made.name.text.rpartition(".")[2], tree.name.text.rpartition(".")[2]
    plain = [a.value for a in made.arguments if a.keyword is None]
    given = {a.keyword.text: a.value for a in made.arguments if a.keyword is not None}
    for parameters, log_prob, entropy in _FORMS.get(name, ()):
        first = (_FIRST[name],) if name in _FIRST else parameters
        values = dict(zip(first, plain, strict=False)) | given
        rest = [a.value for a in tree.arguments[1:]]
        wanted = 1 if method == "log_prob" else 0
        if set(values) != set(parameters) or len(rest) != wanted:
            continue
        text = log_prob if wanted else entropy
        values |= dict(zip(("value",), rest, strict=False))
        return frameworks.substituted(frameworks.parsed(text), values, tree)
    return None
