"""Cancel slices of concatenations, and concatenations of slices."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.dataclasses import dataclass, replace
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Fusion, Node, Operand
from fusec.passes.rewrite import Rewriter, fits, rewrite

Rewritten = Sequence[Operand] | None


@dataclass(frozen=True)
class Cut:
    """A slice: the tensor and, for each dim, its start, end and step."""

    tensor: Operand
    starts: tuple[Dim, ...]
    ends: tuple[Dim, ...]
    steps: tuple[int, ...]

    def is_whole(self, axis: int) -> bool:
        """Return whether the slice keeps the whole dim."""
        extent = self.tensor.shape[axis]
        return self.starts[axis] == 0 and self.ends[axis] == extent and self.steps[axis] == 1

    def is_empty_cut(self) -> bool:
        """Return whether the slice keeps the whole tensor."""
        return all(self.is_whole(axis) for axis in range(len(self.starts)))

    def attributes(self) -> dict[str, object]:
        """Return the attributes of the slice operation."""
        return {"start_indices": self.starts, "end_indices": self.ends, "strides": self.steps}


def cancel_slices(fusion: Fusion) -> Fusion:
    """Read through slices of slices and of cats, and merge slices that a cat makes adjacent."""
    return rewrite(fusion, _rule)


def _rule(node: Node, work: Rewriter) -> Rewritten:
    if node.op.name == "cat":
        return _joined(node, work)
    if node.op.name != "slice":
        return None
    cut = _cut(node)
    if cut.is_empty_cut():
        return (cut.tensor,)
    inner = work.source(cut.tensor, "slice")
    if inner is not None:
        merged = _merged(_cut(inner), cut)
        return None if merged is None else _placed(node, merged, work)
    inner = work.source(cut.tensor, "cat")
    return None if inner is None else _of_cat(node, cut, inner, work)


def _cut(node: Node) -> Cut:
    attributes = node.attributes
    return Cut(
        node.operands[0],
        tuple(dim(d) for d in attributes["start_indices"]),
        tuple(dim(d) for d in attributes["end_indices"]),
        tuple(attributes["strides"]),
    )


def _placed(node: Node, cut: Cut, work: Rewriter) -> Rewritten:
    """Replace `node` by a slice, or by the tensor itself if the slice keeps all of it."""
    if cut.is_empty_cut():
        return (cut.tensor,)
    if not fits(node, "slice", [cut.tensor], cut.attributes()):
        return None
    return work.become(node, "slice", [cut.tensor], cut.attributes())


def _merged(first: Cut, second: Cut) -> Cut | None:
    """Return a slice of a slice as one; None if a stepped dim is sliced again."""
    starts, ends, steps = list(first.starts), list(first.ends), list(first.steps)
    for axis in range(len(starts)):
        if second.is_whole(axis):
            continue
        if steps[axis] != 1:
            return None
        ends[axis] = starts[axis] + second.ends[axis]
        starts[axis] += second.starts[axis]
        steps[axis] = second.steps[axis]
    return Cut(first.tensor, tuple(starts), tuple(ends), tuple(steps))


def _of_cat(node: Node, cut: Cut, cat: Node, work: Rewriter) -> Rewritten:
    """Read the concatenated tensors that the range covers: whole ones, or a part of one."""
    axis: int = cat.attributes["dim"]
    offsets = [dim(0)]
    for piece in cat.operands:
        offsets.append(offsets[-1] + piece.shape[axis])
    first, last = _covering(offsets, cut.starts[axis], cut.ends[axis])
    pieces = cat.operands[first:last]
    if len(pieces) == 1:
        shift = offsets[first]
        starts = _with(cut.starts, axis, cut.starts[axis] - shift)
        ends = _with(cut.ends, axis, cut.ends[axis] - shift)
        return _placed(node, Cut(pieces[0], starts, ends, cut.steps), work)
    exact = cut.starts[axis] == offsets[first] and cut.ends[axis] == offsets[last]
    others = all(cut.is_whole(k) for k in range(len(cut.starts)) if k != axis)
    if exact and others and cut.steps[axis] == 1 and 0 < len(pieces) < len(cat.operands):
        return work.become(node, "cat", pieces, {"dim": axis})
    return None


def _with(sizes: tuple[Dim, ...], axis: int, size: Dim) -> tuple[Dim, ...]:
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def _covering(offsets: Sequence[Dim], start: Dim, end: Dim) -> tuple[int, int]:
    """Return the narrowest run of tensors that provably contains the range."""
    first = max((k for k in range(len(offsets) - 1) if start.at_least(offsets[k])), default=0)
    last = min(
        (k for k in range(first + 1, len(offsets)) if offsets[k].at_least(end)),
        default=len(offsets) - 1,
    )
    return first, last


def _joined(node: Node, work: Rewriter) -> Rewritten:
    """Merge adjacent operands that are adjacent slices of one tensor."""
    axis: int = node.attributes["dim"]
    if len(node.operands) == 1:
        return node.operands
    runs: list[Operand | Cut] = []
    before: Cut | None = None
    for operand in node.operands:
        source = work.source(operand, "slice")
        cut = None if source is None else _cut(source)
        if before is not None and cut is not None and _touch(before, cut, axis):
            cut = replace(before, ends=_with(before.ends, axis, cut.ends[axis]))
            runs[-1] = cut
        else:
            runs.append(operand)
        before = cut
    return _rebuilt(node, runs, axis, work)


def _touch(left: Cut, right: Cut, axis: int) -> bool:
    """Return whether two slices differ only along `axis`, one beginning at the other's end."""
    zero = dim(0)
    return (
        left.tensor is right.tensor
        and left.steps == right.steps
        and left.steps[axis] == 1
        and _with(left.starts, axis, zero) == _with(right.starts, axis, zero)
        and _with(left.ends, axis, zero) == _with(right.ends, axis, zero)
        and left.ends[axis] == right.starts[axis]
    )


def _rebuilt(node: Node, runs: Sequence[Operand | Cut], axis: int, work: Rewriter) -> Rewritten:
    if len(runs) == len(node.operands):
        return None
    if len(runs) == 1 and isinstance(runs[0], Cut):
        return _placed(node, runs[0], work)
    pieces: list[Operand] = []
    for run in runs:
        if not isinstance(run, Cut):
            pieces.append(run)
        elif run.is_empty_cut():
            pieces.append(run.tensor)
        else:
            pieces.append(work.add(node, "slice", [run.tensor], run.attributes()))
    return work.become(node, "cat", pieces, {"dim": axis})
