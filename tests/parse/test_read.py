"""Lines of PyTorch programs that are read as they are: the graph is that of fusec's own line."""

from __future__ import annotations

import pytest

from fusec.ir.graph import Operand
from fusec.parse import read_text

HEAD = """fusion: f
dims: {B: 4, S: 6, H: {default: 8, multiple_of: 8}, O: 3, N: 2, D: 4, V: 12}
inputs:
  x: f32[B, H]
  y: f32[B, H]
  h: bf16[B, H]
  w: f32[H]
  W: f32[O, H]
  s: f32[B, S, H]
  t: f32[B, S, H]
  q: f32[B, N, S, D]
  k: f32[B, N, S, D]
  e: f32[V, H]
  c: f32[V]
  i: i64[B]
  ids: i64[B, S]
ops:
"""
READ = {
    # what Python knows of shapes and types
    "r = x * x.shape[-1]": "r = x * H",
    "r = x.reshape(*x.shape[:-1], 2, -1)": "r = reshape(x, [B, 2, -1])",
    "r = x[..., :x.shape[-1] // 2]": "r = x[..., :H // 2]",
    "r = w.expand(x.shape)": "r = expand(w, [B, H])",
    "r = w.expand_as(x)": "r = expand(w, [B, H])",
    "r = x.type_as(h)": "r = cast(x, bf16)",
    "r = (x + y).type_as(h)": "r = cast(x + y, bf16)",
    "r = (x + y).shape[0] * x": "r = B * x",
    "r = where(y > 0, x, torch.finfo(torch.float16).min)": "r = where(y > 0, x, -65504.0)",
    "b, m = x.shape|r = reshape(x, [b * m])": "r = reshape(x, [B * H])",
    "B, H = x.shape|r = reshape(x, [B * H])": "r = reshape(x, [B * H])",
    "b, _, n = s.size()|r = reshape(s, [b, -1, n])": "r = reshape(s, [B, -1, H])",
    "r = s.mean(dim=tuple(range(1, s.dim())))": "r = mean(s, [1, 2])",
    "r = s.mean(list(range(1, s.ndim)))": "r = mean(s, [1, 2])",
    "r = s * i.float().view(-1, *([1] * (s.ndim - 1)))":
        "r = s * reshape(cast(i, f32), [-1, 1, 1])",
    "r = s * i.float()[(...,) + (None,) * 2]": "r = s * cast(i, f32)[..., none, none]",
    "r = len(s.shape) * x": "r = 3 * x",
    "r = x * max(1.0, 2.0)": "r = x * 2.0",
    # functions whose arguments stand otherwise in PyTorch
    "r = torch.max(x, y)": "r = maximum(x, y)",
    "r = x.min(y * 2)": "r = minimum(x, y * 2)",
    "r = x.var(-1, unbiased=False)": "r = var(x, -1, 0)",
    "r = x.var(-1, False, True)": "r = var(x, -1, 0, true)",
    "r = x.var(dim=-1, unbiased=False, correction=0)": "r = var(x, -1, 0)",
    "r = sum([x, y])": "r = x + y",
    "r = x @ W.transpose()": "r = x @ permute(W, [1, 0])",
    "r = x.tile(2)": "r = repeat(x, [1, 2])",
    "r = x[:, :1].squeeze()": "r = squeeze(x[:, :1], [1])",
    "r = torch.squeeze(x[:, :1] * 2)": "r = squeeze(x[:, :1] * 2, [1])",
    "r = W.t()": "r = permute(W, [1, 0])",
    "r = clamp(x, min=0.0)": "r = maximum(x, 0.0)",
    "r = torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)":
        "r = cat([chunk(x, 2, -1)[1], chunk(x, 2, -1)[0]], -1)",
    "r = sum(x.chunk(2, -1))": "r = chunk(x, 2, -1)[0] + chunk(x, 2, -1)[1]",
    "r = zeros(B, H) + x": "r = zeros([B, H]) + x",
    "r = ones(B, V).scatter(1, i[:, None], 2.0)": "r = scatter(ones([B, V]), i[:, none], 2.0, 1)",
    "r = einsum('bh,bh', x, y)": "r = einsum('bh,bh->', x, y)",
    "r = repeat(x, 'b h -> b s h', s=S)": "r = broadcast_in_dim(x, [B, S, H], [0, 2])",
    "r = repeat(x, 'b h -> b (h 2)')":
        "r = reshape(broadcast_in_dim(x, [B, H, 2], [0, 1]), [B, 2 * H])",
    "r = rearrange(s, '... h -> h ...')": "r = permute(s, [2, 0, 1])",
    "r = reduce(s, 'b s h -> b h', reduction='max')": "r = max(s, [1])",
    "r = s[(0, 1)]": "r = s[0, 1]",
    "r = s[torch.arange(B)[:, None], ids]":
        "r = gather(s, expand(unsqueeze(ids, 2), [B, S, H]), 1)",
    "r = x / torch.numel(x)": "r = x / (B * H)",
    "r = s[i, 0]": "r = index_select(s[:, 0], i, 0)",
    "r = w.t() + x": "r = set(w) + x",
    "r = torch.einsum('bsh,oh->bso', s, W)": "r = linear(s, W)",
    "r = torch.einsum('bln,bsn->bls', s, t)": "r = s @ transpose(t, -2, -1)",
    "r = torch.einsum('...d,...d->...', q, k)": "r = sum(q * k, [3])",
    "r = torch.einsum('...ij,j->...i', s, w)": "r = sum(s * w[none, none, :], [2])",
    "r = torch.einsum('bh,bh->b', [x, y])": "r = sum(x * y, [1])",
    "r = einsum(q, k, 'b h i d, b h j d -> b h i j')": "r = q @ transpose(k, -2, -1)",
    "r = rearrange(q, 'b h s d -> b s (h d)')":
        "r = reshape(permute(q, [0, 2, 1, 3]), [B, S, N * D])",
    "r = x.to('cuda', torch.float16)": "r = cast(x, f16)",
    "r = x.to(h)": "r = cast(x, bf16)",
    "r = x.to(float)": "r = cast(x, f64)",
    "r = x.astype(int)": "r = cast(x, i64)",
    "r = torch.zeros(B, H, dtype=float)": "r = zeros([B, H], dtype=f64)",
    "r = x.to(y.device)": "r = set(x)",
    # one of several results
    "r = torch.topk(x, 2, dim=-1)[1]": "_, r = topk(x, 2)",
    "r = x.topk(2).values * 2": "v, _ = topk(x, 2)|r = v * 2",
    "r = x.max(dim=1)[0]": "r = max(x, 1)",
    "r = x.max(dim=1).indices": "r = argmax(x, 1)",
    "r = s.unbind(2)[-1]": "r = select(s, -1, 2)",
    "r = x.split([3, H - 3], -1)[1]": "_, r = split(x, [3, H - 3], -1)",
    "r = divmod(ids, 3)[1]": "r = ids % 3",
    # tensors and lists as indices
    "r = e[i]": "r = index_select(e, i, 0)",
    "r = s[:, i]": "r = index_select(s, i, 1)",
    "r = e[ids]": "r = embedding_fwd(ids, e)",
    "r = x[torch.arange(B), i]": "r = squeeze(gather(x, unsqueeze(i, 1), 1), [1])",
    "r = s[torch.arange(B), -1]": "r = s[:, -1]",
    "r = x[:, [0, 2]]": "r = stack([x[:, 0], x[:, 2]], 1)",
    "r = x.index_select(1, torch.tensor([0, 2]))": "r = stack([x[:, 0], x[:, 2]], 1)",
    "r = x[:, ::-1]": "r = flip(x, [1])",
    "r = c[i][:, None] * x + (1 - c[i])[:, None] * y":
        "r = index_select(c, i, 0)[:, none] * x + (1 - index_select(c, i, 0))[:, none] * y",
}  # fmt: skip


def graph_of(lines: str) -> str:
    """Return the operations of a file by their inputs and types, without the names of values."""
    text = HEAD + "".join(f"  - {line}\n" for line in lines.split("|")) + "outputs: [r]\n"
    fusion = read_text(text)
    made = [v for node in fusion.nodes for v in node.outputs]

    def named(operand: Operand) -> str:
        return f"%{made.index(operand)}" if operand in made else str(operand)

    return "\n".join(
        f"{node.op.name}({[*map(named, node.operands)]}, {dict(node.attributes)})"
        f" -> {[str(v.type) for v in node.outputs]}"
        for node in fusion.nodes
    )


@pytest.mark.parametrize("lines", READ)
def test_a_line_is_read_as_its_equal(lines: str) -> None:
    assert graph_of(lines) == graph_of(READ[lines])
