"""Further models for `record_archives.py`: with convolutions, and with forms that models have."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


class FeedForward(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return self.down(F.silu(self.up(self.norm(x))))


class RelativeAttention(nn.Module):
    """Attention with relative positions, shifted as in Transformer-XL."""

    def __init__(self, d, h):
        super().__init__()
        self.h, self.hd, self.norm = h, d // h, nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.pos = nn.Linear(d, d, bias=False)
        self.u, self.w = (nn.Parameter(torch.randn(h, d // h) * 0.1) for _ in range(2))

    def forward(self, x, pos, mask):
        x = self.norm(x)
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.h, self.hd) for f in (self.q, self.k, self.v))
        p = self.pos(pos).view(1, -1, self.h, self.hd).transpose(1, 2)
        content = (q + self.u).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        shifted = (q + self.w).transpose(1, 2) @ p.transpose(-2, -1)
        shifted = F.pad(shifted, (1, 0)).view(b, self.h, -1, t)[:, :, 1:]
        shifted = shifted.reshape(b, self.h, t, 2 * t - 1)[:, :, :, :t]
        scores = (content + shifted) / math.sqrt(self.hd)
        hidden = mask[:, None, None, :] == 0
        p = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1).masked_fill(hidden, 0.0)
        return self.o((p @ v.transpose(1, 2)).transpose(1, 2).reshape(b, t, d))


class ConvModule(nn.Module):
    def __init__(self, d, k=7):
        super().__init__()
        self.norm, self.bn = nn.LayerNorm(d), nn.BatchNorm1d(d)
        self.up, self.down = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(d, d, 1)
        self.depthwise = nn.Conv1d(d, d, k, padding=k // 2, groups=d)

    def forward(self, x):
        x = F.glu(self.up(self.norm(x).transpose(1, 2)), dim=1)
        return self.down(F.silu(self.bn(self.depthwise(x)))).transpose(1, 2)


class Conformer(nn.Module):
    def __init__(self, d=16, h=2):
        super().__init__()
        self.d = d
        self.sub = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2), nn.ReLU()
        )
        self.inp, self.ff1, self.ff2 = nn.Linear(16, d), FeedForward(d), FeedForward(d)
        self.attention, self.conv = RelativeAttention(d, h), ConvModule(d)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 20)

    def forward(self, mel, mask):
        x = self.sub(mel.unsqueeze(1))
        b, c, t, f = x.shape
        x = self.inp(x.transpose(1, 2).reshape(b, t, c * f))
        pos = torch.arange(t - 1, -t, -1.0)
        rates = torch.exp(torch.arange(0, self.d, 2.0) * (-math.log(10000.0) / self.d))
        angles = pos[:, None] * rates
        x = x + 0.5 * self.ff1(x)
        x = x + self.attention(x, torch.cat([angles.sin(), angles.cos()], -1)[None], mask)
        x = x + self.conv(x)
        x = x + 0.5 * self.ff2(x)
        return F.log_softmax(self.head(self.norm(x)), -1)


class ResBlock(nn.Module):
    def __init__(self, i, o, t):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, i), nn.GroupNorm(2, o)
        self.conv1, self.conv2 = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1)
        self.time, self.skip = nn.Linear(t, o), nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, e):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(e))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    """A U-Net of a diffusion model: attention in the middle, one level, a skip."""

    def __init__(self, c=4, t=8):
        super().__init__()
        self.t = t
        self.embed = nn.Sequential(nn.Linear(t, t), nn.SiLU(), nn.Linear(t, t))
        self.inp, self.out = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 3, 3, padding=1)
        self.first, self.middle = ResBlock(c, c, t), ResBlock(c, 2 * c, t)
        self.down, self.up = nn.Conv2d(c, c, 3, 2, 1), nn.Conv2d(2 * c, c, 3, padding=1)
        self.norm, self.qkv, self.proj = (
            nn.GroupNorm(2, 2 * c), nn.Conv2d(2 * c, 6 * c, 1), nn.Conv2d(2 * c, 2 * c, 1),
        )  # fmt: skip
        self.last, self.end = ResBlock(2 * c, c, t), nn.GroupNorm(2, c)

    def forward(self, x, time):
        rates = torch.exp(torch.arange(self.t // 2) * (-math.log(10000.0) / (self.t // 2)))
        angles = time[:, None].float() * rates[None]
        e = self.embed(torch.cat([angles.sin(), angles.cos()], -1))
        skip = self.first(self.inp(x), e)
        h = self.middle(self.down(skip), e)
        b, c, height, width = h.shape
        parts = self.qkv(self.norm(h)).view(b, 3, 2, c // 2, height * width).unbind(1)
        q, k, v = (a.transpose(-1, -2) for a in parts)
        o = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2)
        h = h + self.proj(o.reshape(b, c, height, width))
        h = self.up(F.interpolate(h, scale_factor=2, mode="nearest"))
        h = self.last(torch.cat([h, skip], 1), e)
        return self.out(F.silu(self.end(h)))


class DLRM(nn.Module):
    """A recommendation model: embeddings, one of them summed over a bag, and their products."""

    def __init__(self, d=8, tables=(30, 20, 50)):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, d), nn.ReLU())
        self.tables = nn.ModuleList([nn.Embedding(n, d) for n in tables])
        self.bag, n = nn.EmbeddingBag(40, d, mode="sum"), len(tables) + 2
        self.top = nn.Sequential(nn.Linear(d + n * (n - 1) // 2, 16), nn.ReLU(), nn.Linear(16, 1))
        rows, columns = torch.tril_indices(n, n, offset=-1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, dense, sparse, bag):
        x = self.bottom(dense)
        found = [table(sparse[:, k]) for k, table in enumerate(self.tables)]
        z = torch.stack([x, *found, self.bag(bag)], 1)
        dots = torch.bmm(z, z.transpose(1, 2))[:, self.rows, self.columns]
        return torch.sigmoid(self.top(torch.cat([x, dots], 1))).squeeze(-1)


class RWKV(nn.Module):
    """A block of RWKV-6: mixed with the token before, decays from data, a loop over time."""

    def __init__(self, d=8, h=2):
        super().__init__()
        self.h, self.hd = h, d // h
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mix = nn.ParameterList([nn.Parameter(torch.rand(d)) for _ in range(5)])
        self.r, self.k, self.v, self.g, self.o = (nn.Linear(d, d, bias=False) for _ in range(5))
        self.w, self.bonus = nn.Parameter(torch.randn(d)), nn.Parameter(torch.randn(h, d // h))
        self.w_in, self.w_out = nn.Linear(d, 4, bias=False), nn.Linear(4, d, bias=False)
        self.heads, self.shift = nn.GroupNorm(h, d, eps=64e-5), nn.ZeroPad2d((0, 0, 1, -1))
        self.ck, self.cv = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)
        self.cr = nn.Linear(d, d, bias=False)

    def forward(self, x, state):
        y = self.norm1(x)
        b, t, d = y.shape
        before = self.shift(y) - y
        mixed = [y + before * m for m in self.mix]
        inner = zip((self.r, self.k, self.v), mixed, strict=False)
        r, k, v = (f(z).view(b, t, self.h, self.hd) for f, z in inner)
        decay = torch.exp(-torch.exp(self.w + self.w_out(torch.tanh(self.w_in(mixed[3])))))
        decay, outputs = decay.view(b, t, self.h, self.hd), []
        for i in range(t):
            kv = k[:, i, :, :, None] * v[:, i, :, None, :]
            read = state + self.bonus[:, :, None] * kv
            outputs.append(torch.einsum("bhi,bhij->bhj", r[:, i], read))
            state = state * decay[:, i, :, :, None] + kv
        y = self.heads(torch.stack(outputs, 1).reshape(b * t, d)).view(b, t, d)
        x = x + self.o(y * F.silu(self.g(mixed[4])))
        y = self.norm2(x)
        z = y + (self.shift(y) - y) * 0.5
        return x + torch.sigmoid(self.cr(z)) * self.cv(torch.relu(self.ck(z)).square()), state


class T5Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6)).to(self.weight.dtype)


class T5Attention(nn.Module):
    """Attention with a bias from buckets of distances: `both` ways, `past` alone, or without."""

    def __init__(self, d, h, kind=""):
        super().__init__()
        self.h, self.kind = h, kind
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.relative = nn.Embedding(32, h) if kind else None

    def buckets(self, rows, columns):
        distance = torch.arange(columns)[None] - torch.arange(rows)[:, None]
        number, first = 32, torch.zeros_like(distance)
        if self.kind == "both":
            number //= 2
            first = first + (distance > 0).to(torch.long) * number
            distance = distance.abs()
        else:
            distance = -torch.min(distance, torch.zeros_like(distance))
        exact = number // 2
        ratio = torch.log(distance.float() / exact) / math.log(128 / exact)
        large = exact + (ratio * (number - exact)).to(torch.long)
        large = torch.min(large, torch.full_like(large, number - 1))
        return first + torch.where(distance < exact, distance, large)

    def forward(self, x, memory=None, mask=None):
        b, t, _ = x.shape
        memory = x if memory is None else memory
        pairs = (self.q, x), (self.k, memory), (self.v, memory)
        q, k, v = (f(z).view(b, z.shape[1], self.h, -1).transpose(1, 2) for f, z in pairs)
        scores = q @ k.transpose(3, 2)
        if self.relative is not None:
            bias = self.relative(self.buckets(t, k.shape[2])).permute(2, 0, 1).unsqueeze(0)
            scores = scores + (bias if mask is None else bias + mask)
        p = F.softmax(scores.float(), -1).type_as(scores)
        return self.o((p @ v).transpose(1, 2).contiguous().view(b, t, -1))


class T5(nn.Module):
    """An encoder and a decoder layer of T5 1.1."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.embed, self.d = nn.Embedding(40, d), d
        self.norms = nn.ModuleList([T5Norm(d) for _ in range(7)])
        self.encoder, self.decoder = T5Attention(d, h, "both"), T5Attention(d, h, "past")
        self.cross = T5Attention(d, h)
        self.gates, self.ups, self.downs = (
            nn.ModuleList([nn.Linear(i, o, bias=False) for _ in range(2)])
            for i, o in ((d, 2 * d), (d, 2 * d), (2 * d, d))
        )

    def feed_forward(self, x, norm, number):
        y = norm(x)
        gate = F.gelu(self.gates[number](y), approximate="tanh")
        return x + self.downs[number](gate * self.ups[number](y))

    def forward(self, ids, targets):
        norms = self.norms
        x = self.embed(ids)
        x = x + self.encoder(norms[0](x))
        x = norms[2](self.feed_forward(x, norms[1], 0))
        y, t = self.embed(targets), targets.shape[1]
        mask = torch.triu(torch.full((t, t), float("-inf")), 1)[None, None]
        y = y + self.decoder(norms[3](y), mask=mask)
        y = y + self.cross(norms[4](y), x)
        y = norms[6](self.feed_forward(y, norms[5], 1))
        return (y * self.d**-0.5) @ self.embed.weight.T


def programs():
    """Yield the models with their names and inputs."""
    torch.manual_seed(0)
    mask = torch.tensor([[1] * 5, [1] * 3 + [0] * 2])
    sparse, bag = torch.randint(0, 20, (4, 3)), torch.randint(0, 40, (4, 5))
    for name, model, inputs in (
        ("conformer", Conformer(), (torch.randn(2, 23, 19), mask)),
        ("unet", UNet(), (torch.randn(2, 3, 8, 8), torch.tensor([3, 70]))),
        ("dlrm", DLRM(), (torch.randn(4, 13), sparse, bag)),
        ("rwkv", RWKV(), (torch.randn(2, 4, 8), torch.randn(2, 2, 4, 4))),
        ("t5", T5(), (torch.randint(0, 40, (2, 9)), torch.randint(0, 40, (2, 7)))),
    ):
        for parameter in model.parameters():
            if parameter.dim() == 1 and (parameter == parameter[0]).all():
                parameter.data += torch.randn_like(parameter) * 0.1
        for key, buffer in model.named_buffers():
            if "running" in key:
                buffer.data = torch.rand_like(buffer) + 0.5
        yield name, model, inputs, None
