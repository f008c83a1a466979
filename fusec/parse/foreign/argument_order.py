"""Calls of operations with PyTorch's order of arguments, or in forms that only PyTorch has."""

from __future__ import annotations

from fusec.diagnostics import FusecError
from fusec.ir.dtype import DTYPES
from fusec.ir.op import REQUIRED, OpDef
from fusec.ops import TABLE
from fusec.ops.builder.arguments import parameter_called
from fusec.ops.frameworks import Entry, find
from fusec.parse.foreign.layers import LayerCalls
from fusec.parse.syntax.lines import integer_in
from fusec.parse.syntax.trees import CallTree, Items, Name


class ArgumentOrder(LayerCalls):
    """Puts calls by fusec's names with PyTorch's arguments into fusec's order."""

    def in_our_order(self, op: OpDef, tree: CallTree) -> CallTree:
        """Return a call in PyTorch's argument order in fusec's, if it is unambiguous.

        `gather(x, 1, index)`: the dim is a literal, in the position where fusec has a tensor of
        integers, and is followed by an argument that is not a literal.
        """
        arguments, has_too_few = tree.arguments, self._has_too_few(op, tree)
        plain = len(arguments) > 2 and not any(a.keyword for a in arguments[:3])
        ours = len(op.params) > 2 and op.params[1].is_operand and op.params[1].name != "dim"
        first = [integer_in(a.value) for a in arguments[1:3]] if plain and ours else [None, None]
        has_dim_first = first[0] is not None and first[1] is None
        if not has_too_few and not has_dim_first:
            return tree
        entry = find("torch", op.name)
        if entry is None or entry.kind != "other":
            return tree
        if has_too_few:
            return self._made_of(entry, tree) or tree
        if len(entry.parameters) < 3 or entry.parameters[1].name != "dim":
            return tree
        made = self._made_of(entry, tree)
        if made is None or made.name.text != op.name:
            return tree
        self._said.append((made, tree))
        return made

    def _made_of(self, entry: Entry, tree: CallTree) -> CallTree | None:
        try:
            made = self._in_our_words(entry, tree)
        except FusecError:
            return None
        return made if isinstance(made, CallTree) and made.name.text in TABLE else None

    def _has_too_few(self, op: OpDef, tree: CallTree) -> bool:
        """Return whether a call has a form of PyTorch's: `clamp(x, min=0)` or `zeros(B, H)`."""
        plain = [a.value for a in tree.arguments if a.keyword is None]
        words = {parameter_called(op, a.keyword.text) for a in tree.arguments if a.keyword}
        needed = [p for p in op.params if p.default is REQUIRED]
        if op.params and op.params[0].kind == "shape" and len(plain) > 1:
            listed = isinstance(plain[0], Items)
            names = {part.text for part in plain if isinstance(part, Name)}
            return not listed and not names & set(DTYPES)
        known = {p.name for p in op.params}
        missing = [p for p in needed[len(plain) :] if p.name not in words]
        return bool(missing) and bool(words) and words <= known
