"""Record small archives of `torch.export`, each with its inputs and the outputs of PyTorch.

`python tests/models/record_archives.py [NAME...]` needs PyTorch (those here are of 2.13). NAME.pt2
is the graph as exported, NAME_core.pt2 after `run_decompositions()`; NAME.npz has in0, in1, ... and
out0, out1, ... Weights are random.
"""

from __future__ import annotations

import math
import re
import sys
import zipfile
from pathlib import Path

import further_models
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, export, save

OUT = Path(__file__).parent / "archives"
FOLDER = re.compile(rb'(File \\")[^"\\]*/')
KEPT = ("archive_", "byteorder", "models/", "data/weights/", "data/constants/")


class GPT(nn.Module):
    def __init__(self, d=32, h=4):
        super().__init__()
        self.h, self.wte, self.wpe = h, nn.Embedding(50, d), nn.Embedding(16, d)
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(
            nn.Linear(d, 2 * d), nn.GELU(approximate="tanh"), nn.Linear(2 * d, d)
        )
        self.drop = nn.Dropout(0.1)

    def forward(self, ids):
        b, t = ids.shape
        x = self.drop(self.wte(ids) + self.wpe(torch.arange(t)))
        q, k, v = self.qkv(self.ln_1(x)).split(x.shape[-1], dim=2)
        q, k, v = (a.view(b, t, self.h, -1).transpose(1, 2) for a in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, -1))
        x = x + self.mlp(self.ln_2(x))
        return x @ self.wte.weight.T


class Llama(nn.Module):
    def __init__(self, d=32, heads=4, kv=2):
        super().__init__()
        self.heads, self.kv, self.hd = heads, kv, d // heads
        self.embed, self.norm = nn.Embedding(40, d), nn.Parameter(torch.ones(d) + 0.1)
        self.q, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.k, self.v = (nn.Linear(d, kv * self.hd, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(d, 48, bias=False) for _ in range(2))
        self.down = nn.Linear(48, d, bias=False)
        powers = torch.arange(0, self.hd, 2).float() / self.hd
        self.register_buffer("inv_freq", 1.0 / 10000**powers, persistent=False)

    def rms(self, x):
        wide = x.float()
        return self.norm * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(
            x.dtype
        )

    def forward(self, ids):
        b, t = ids.shape
        x = self.embed(ids)
        pos = torch.arange(t)
        freq = torch.outer(pos.float(), self.inv_freq)
        emb = torch.cat([freq, freq], -1)
        cos, sin = emb.cos(), emb.sin()
        h = self.rms(x)
        q = self.q(h).view(b, t, self.heads, self.hd).transpose(1, 2)
        k = self.k(h).view(b, t, self.kv, self.hd).transpose(1, 2)
        v = self.v(h).view(b, t, self.kv, self.hd).transpose(1, 2)

        def rope(a):
            one, two = a.chunk(2, -1)
            return a * cos + torch.cat([-two, one], -1) * sin

        q, k = rope(q), rope(k)
        k = k[:, :, None].expand(b, self.kv, self.heads // self.kv, t, self.hd)
        k = k.reshape(b, self.heads, t, self.hd)
        v = v.repeat_interleave(self.heads // self.kv, dim=1)
        s = q @ k.transpose(2, 3) / math.sqrt(self.hd)
        mask = torch.full((t, t), float("-inf")).triu(1)
        p = F.softmax((s + mask).float(), dim=-1).to(q.dtype)
        x = x + self.o((p @ v).transpose(1, 2).contiguous().view(b, t, -1))
        h = self.rms(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Cache(nn.Module):
    """Decoding one token into a static cache."""

    def __init__(self, d=16, length=12):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.register_buffer("keys", torch.randn(2, length, d))
        self.register_buffer("values", torch.randn(2, length, d))
        self.register_buffer("steps", torch.zeros(1, dtype=torch.int64))

    def forward(self, x, position):
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys.index_copy_(1, position, k)
        self.values[:, position] = v
        self.steps.add_(1)
        valid = torch.arange(self.keys.shape[1]) <= position
        s = (q @ self.keys.transpose(1, 2)) * 0.25
        p = s.masked_fill(~valid, torch.finfo(s.dtype).min).softmax(-1)
        return p @ self.values


class ViT(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, stride=4)
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, d)), nn.Parameter(torch.randn(1, 10, d))
        self.layer = nn.TransformerEncoderLayer(
            d, 4, 48, batch_first=True, activation="gelu", norm_first=True
        )
        self.head = nn.Linear(d, 5)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        return self.head(self.layer(x)[:, 0])


class DiT(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.norm = nn.LayerNorm(d, elementwise_affine=False)
        self.ada, self.fc, self.t = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(16, d)

    def forward(self, x, time):
        half = torch.exp(-math.log(10000) * torch.arange(8, dtype=torch.float32) / 8)
        args = time[:, None].float() * half[None]
        c = F.silu(self.t(torch.cat([torch.cos(args), torch.sin(args)], -1)))
        shift, scale, gate = self.ada(c).chunk(3, dim=1)
        x = self.norm(x) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)
        return x + gate.unsqueeze(1) * self.fc(x)


class T5Bias(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Embedding(16, 2)

    def forward(self, q, k):
        n, m = q.shape[2], k.shape[2]
        r = torch.arange(m)[None] - torch.arange(n)[:, None]
        buckets = (r > 0).long() * 8
        r = r.abs()
        large = 4 + (torch.log(r.float() / 4) / math.log(32 / 4) * 4).to(torch.long)
        large = torch.min(large, torch.full_like(large, 7))
        buckets += torch.where(r < 4, r, large)
        s = torch.matmul(q, k.transpose(3, 2)) + self.bias(buckets).permute(2, 0, 1).unsqueeze(0)
        return F.softmax(s.float(), dim=-1).type_as(s)


class MoE(nn.Module):
    def __init__(self, d=16, e=4):
        super().__init__()
        self.router, self.w1 = nn.Linear(d, e), nn.Parameter(torch.randn(e, d, 24) / 4)
        self.w2 = nn.Parameter(torch.randn(e, 24, d) / 4)

    def forward(self, x):
        p, i = self.router(x).softmax(-1).topk(2, dim=-1)
        p = p / p.sum(-1, keepdim=True)
        weight = torch.zeros(x.shape[0], 4).scatter(1, i, p)
        h = F.gelu(torch.einsum("nd,edf->enf", x, self.w1))
        y = torch.einsum("enf,efd->end", h, self.w2)
        load = F.one_hot(i, 4).sum((0, 1))
        return torch.einsum("end,ne->nd", y, weight), load


class Mamba(nn.Module):
    def __init__(self, d=16, n=4):
        super().__init__()
        self.inp, self.conv = nn.Linear(d, 2 * d), nn.Conv1d(d, d, 4, groups=d, padding=3)
        self.bc, self.dt = nn.Linear(d, 2 * n), nn.Linear(d, d)
        self.a_log, self.skip = nn.Parameter(torch.randn(d, n)), nn.Parameter(torch.randn(d))

    def forward(self, u):
        t = u.shape[1]
        x, z = self.inp(u).chunk(2, -1)
        x = F.silu(self.conv(x.transpose(1, 2))[..., :t].transpose(1, 2))
        b, c = self.bc(x).chunk(2, -1)
        dt = F.softplus(self.dt(x))
        da = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.a_log))
        db = dt.unsqueeze(-1) * b.unsqueeze(2) * x.unsqueeze(-1)
        h, ys = torch.zeros_like(db[:, 0]), []
        for k in range(t):
            h = da[:, k] * h + db[:, k]
            ys.append((h * c[:, k, None]).sum(-1))
        return (torch.stack(ys, 1) + x * self.skip) * F.silu(z)


class ConvNet(nn.Module):
    """Convolutions of patches and of 1 x 1, norms, pooling and enlarging."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 2, stride=2), nn.BatchNorm2d(8)
        self.point, self.gn = nn.Conv2d(8, 16, 1), nn.GroupNorm(4, 16)
        self.bn.running_mean.normal_()
        self.bn.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)), inplace=True)
        x = F.max_pool2d(F.silu(self.gn(self.point(x))), 2)
        x = F.pixel_shuffle(F.interpolate(x, scale_factor=2, mode="nearest"), 2)
        return F.adaptive_avg_pool2d(x, 1).flatten(1), F.avg_pool2d(x, 4)


class Clip(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.embed = nn.Embedding(30, d)
        self.layer = nn.TransformerEncoderLayer(d, 2, 32, batch_first=True)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, ids, image):
        mask = torch.empty(ids.shape[1], ids.shape[1]).fill_(float("-inf")).triu_(1)
        x = self.layer(self.embed(ids), src_mask=mask)
        x = x[torch.arange(x.shape[0]), ids.argmax(dim=-1)]
        x = x / x.norm(dim=-1, keepdim=True)
        image = F.normalize(image, dim=-1)
        return self.scale.exp() * image @ x.t()


class Swin(nn.Module):
    def __init__(self, d=16, w=2):
        super().__init__()
        self.w, self.qkv, self.bias = w, nn.Linear(d, 3 * d), nn.Parameter(torch.randn(9, 2))
        grid = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij")).flatten(
            1
        )
        rel = (grid[:, :, None] - grid[:, None]).permute(1, 2, 0) + w - 1
        self.register_buffer("index", rel[..., 0] * (2 * w - 1) + rel[..., 1])

    def forward(self, x):
        b, h, w, c = x.shape
        x = torch.roll(x, (-1, -1), (1, 2))
        x = x.view(b, h // self.w, self.w, w // self.w, self.w, c)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.w**2, c)
        parts = self.qkv(x).reshape(x.shape[0], -1, 3, 2, c // 2)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        s = (q * (c // 2) ** -0.5) @ k.transpose(-2, -1)
        s = s + self.bias[self.index.view(-1)].view(4, 4, 2).permute(2, 0, 1).unsqueeze(0)
        y = (s.softmax(-1) @ v).transpose(1, 2).reshape(-1, self.w**2, c)
        y = y.view(b, h // self.w, w // self.w, self.w, self.w, c)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.roll(y, (1, 1), (1, 2))


class AdamW(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("p", "m", "v"):
            self.register_buffer(name, torch.rand(6, 5))
        self.register_buffer("step", torch.tensor(3.0))

    def forward(self, g):
        self.step += 1
        self.p.mul_(1 - 1e-3 * 0.01)
        self.m.lerp_(g, 0.1)
        self.v.mul_(0.999).addcmul_(g, g, value=0.001)
        denom = (self.v.sqrt() / (1 - 0.999**self.step).sqrt()).add_(1e-8)
        self.p.addcdiv_(self.m / (1 - 0.9**self.step), denom, value=-1e-3)
        return self.p.norm()


class Loss(nn.Module):
    def forward(self, logits, target):
        shifted = logits[..., :-1, :].contiguous().view(-1, logits.shape[-1])
        loss = F.cross_entropy(shifted.float(), target[..., 1:].reshape(-1), ignore_index=-100)
        z = torch.logsumexp(logits, -1).pow(2).mean()
        return loss + 1e-4 * z, logits.argmax(-1)


class Views(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(4, 6))

    def forward(self, x):
        y = x.clone()
        y[:, ::2] = 1.0
        y.t()[1].mul_(3)
        z = torch.zeros(4, 6)
        z[1:3, 2:5] = y[1:3, 2:5]
        self.state[0].copy_(z[1])
        self.state[-1] += x[2]
        return y, z, self.state.sum(1)


def programs():
    torch.manual_seed(0)
    ids = torch.randint(0, 30, (2, 8))
    dims = {"ids": {0: Dim("batch", max=64), 1: Dim("length", max=16)}}
    yield "gpt", GPT(), (ids,), dims
    yield "llama", Llama(), (ids,), dims
    yield "cache", Cache(), (torch.randn(2, 1, 16), torch.tensor([5])), None
    yield "vit", ViT(), (torch.randn(2, 3, 12, 12),), None
    yield "dit", DiT(), (torch.randn(2, 6, 24), torch.tensor([3, 700])), None
    yield "t5_bias", T5Bias(), (torch.randn(1, 2, 7, 8), torch.randn(1, 2, 9, 8)), None
    yield "moe", MoE(), (torch.randn(9, 16),), None
    yield "mamba", Mamba(), (torch.randn(2, 6, 16),), None
    yield "convnet", ConvNet(), (torch.randn(2, 3, 16, 16),), None
    yield "clip", Clip(), (ids, torch.randn(3, 16)), None
    yield "swin", Swin(), (torch.randn(2, 4, 4, 16),), None
    yield "adamw", AdamW(), (torch.randn(6, 5),), None
    yield "loss", Loss(), (torch.randn(2, 8, 11), torch.randint(0, 11, (2, 8))), None
    yield "views", Views(), (torch.randn(4, 6),), None
    yield from further_models.programs()
    yield "half", GPT().to(torch.bfloat16), (ids,), None


def store(program, path):
    """Save a program without pickled inputs, and without the folders of source files."""
    save(program, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            if name.partition("/")[2].startswith(KEPT):
                archive.writestr(zipfile.ZipInfo(name), FOLDER.sub(rb"\1", data))


def main():
    for name, model, inputs, dynamic in programs():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        model = model.eval()
        program = export(model, inputs, dynamic_shapes=dynamic)
        store(program, OUT / f"{name}.pt2")
        store(program.run_decompositions(), OUT / f"{name}_core.pt2")
        found = model(*inputs)
        found = found if isinstance(found, tuple) else (found,)
        arrays = {f"in{k}": a.numpy() for k, a in enumerate(inputs)}
        wide = (a.detach().float() if a.is_floating_point() else a for a in found)
        arrays |= {f"out{k}": a.numpy() for k, a in enumerate(wide)}
        np.savez(OUT / f"{name}.npz", **arrays)


if __name__ == "__main__":
    main()
