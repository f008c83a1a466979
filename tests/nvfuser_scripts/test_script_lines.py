"""Lines of PyTorch in scripts: read as fusec's own, or refused with the line to write."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.ir.text import op_text
from fusec.nvfuser.script import load_script

HEAD = """import math
import torch
import torch.nn as nn
import torch.nn.functional as F
import numpy as np
from {MODULE} import FusionDefinition, DataType

with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[4, 8, 16], contiguity=True, dtype=DataType.Float)
    r = fd.define_tensor(shape=[4, 8, 16], contiguity=True, dtype=DataType.Float)
    w = fd.define_tensor(shape=[16], contiguity=True, dtype=DataType.Float)
    W = fd.define_tensor(shape=[16, 16], contiguity=True, dtype=DataType.Float)
    h = fd.define_tensor(shape=[4, 8, 16], contiguity=True, dtype=DataType.BFloat16)
    m = fd.define_tensor(shape=[4, 8], contiguity=True, dtype=DataType.Bool)
    c = fd.define_tensor(shape=[12], contiguity=True, dtype=DataType.Float)
    ids = fd.define_tensor(shape=[4, 8], contiguity=True, dtype=DataType.Int)
    i = fd.define_tensor(shape=[4], contiguity=True, dtype=DataType.Int)
    logits = fd.define_tensor(shape=[4, 12], contiguity=True, dtype=DataType.Float)
    g = fd.define_scalar(dtype=DataType.Double)
    {LINE}
    fd.add_output(y)
"""
READ = {
    "y = c[ids]":
        "y = fd.ops.reshape(fd.ops.index_select(c, fd.ops.reshape(ids, [32]), 0), [4, 8])",
    "y = x[:, i, 0]": "y = fd.ops.index_select(fd.ops.select(x, 0, 2), i, 1)",
    "y = x[torch.arange(4), -1]": "y = x[:, -1]",
    "y = x[..., ::-1]": "y = fd.ops.flip(x, [2])",
    "y = x.T": "y = fd.ops.permute(x, [2, 1, 0])",
    "y = x.to('cuda', torch.float16)": "y = fd.ops.cast(x, DataType.Half)",
    "y = x.to(h)": "y = fd.ops.cast(x, DataType.BFloat16)",
    "y = x.to(x.device)": "y = fd.ops.set(x)",
    "y = +x": "y = fd.ops.set(x)",
    "y = round(x)": "y = fd.ops.round(x)",
    "y = x * x.dim()": "y = x * 3",
    "D = fd.define_dim('D', 16); y = x * D ** -0.5": "D = 16; y = x * fd.ops.pow(D, -0.5)",
    "B, S, H = x.size(); y = x.reshape(B * S, H)": "y = fd.ops.reshape(x, [32, 16])",
    "assert x.shape == (4, 8, 16); y = x * 2": "y = x * 2",
    "z = x * 2 if x.shape[-1] == 16 else x; y = z + 1": "y = x * 2 + 1",
    "y = x.topk(2).indices": "_, y = fd.ops.topk(x, 2)",
    "y = fd.ops.einsum('bsh,oh->bso', x, W)": "y = fd.ops.linear(x, W)",
    "y = fd.ops.rearrange(x, 'b s (n d) -> b n s d', n=4)":
        "y = fd.ops.permute(fd.ops.reshape(x, [4, 8, 4, 4]), [0, 2, 1, 3])",
    "y = fd.ops.reduce(x, '... h -> ...', 'max')": "y = fd.ops.max(x, [2])",
    "y = x + fd.ops.zeros(4, 8, 16)": "y = x + fd.ops.zeros([4, 8, 16])",
    "y = x.data * 2": "y = x * 2",
    "y = fd.ops.view(x, [4, -1])": "y = fd.ops.reshape(x, [4, -1])",
}  # fmt: skip
MENDED = {
    "y = F.relu(x)": "y = fd.ops.relu(x)",
    "y = torch.gather(logits, 1, i[:, None])": "y = fd.ops.gather(logits, i[:, None], 1)",
    "y = torch.exp(x - torch.amax(x, -1, keepdim=True)).sum(-1)":
        "y = fd.ops.exp(x - fd.ops.amax(x, -1, keepdim=True)).sum(-1)",
    "y = torch.clamp(x, 0)": "y = fd.ops.maximum(x, 0)",
    "y = r + F.dropout(x, 0.1)": "y = r + fd.ops.dropout(x, 0.1)[0]",
    "y = torch.max(x, dim=-1)[0]": "y = fd.ops.max(x, -1)",
    "y = torch.max(x, dim=-1).indices": "y = fd.ops.argmax(x, -1)",
    "y = x.max(-1)[0]": "y = x.max(-1)",
    "y = x.min(dim=-1).indices * 2": "y = x.argmin(dim=-1) * 2",
    "y = nn.LeakyReLU(0.1)(x + r)": "y = fd.ops.leaky_relu(x + r, 0.1)",
    "y = torch.matmul(x, W) / math.sqrt(4)": "y = fd.ops.matmul(x, W) / math.sqrt(4)",
    "y = math.sqrt(x)": "y = fd.ops.sqrt(x)",
    "y = np.maximum(x, 0)": "y = fd.ops.maximum(x, 0)",
    "y = max(x, r)": "y = fd.ops.maximum(x, r)",
    "y = sum(x)": "y = fd.ops.sum(x)",
    "y = 0 < x < 1": "(0 < x) & (x < 1)",
    "y = fd.ops.index_select(x, ids, 1)": "x[:, ids]",
    "y = fd.ops.layernorm(x, w)": "y = fd.ops.layer_norm(x, [fd.ops.size(x, -1)], w)",
    "y = x[m]": "fd.ops.where(m[..., None], x, 0)",
    "y = fd.ops.cast(x, bf16)": "DataType.BFloat16",
    "x.mul_(2); y = x": "",
}  # fmt: skip
TOLD = {
    "y = r + fd.ops.dropout(x, 0.1)": "take one of them: `y, _ = fd.ops.dropout(...)`",
    "y = fd.ops.dropout(x, 0.1) * 2": "take one of them: `y, _ = fd.ops.dropout(...)`",
    "y, z = x.split(8, -1)": "`fd.ops.split(x, size, dim)`",
    "y = nn.Linear(16, 16)(x)": "`fusec import MODEL.pt2 -o DIR`",
    "y = F.conv2d(x, W)": "a fusion has no `conv2d`",
    "y = float(g) * x": "a scalar of the fusion is used as it is",
    "y = fd.ops.rearrange(x, 'b s (n d) -> b n s d')": "give one of them, as in `n=4`",
    "from einops import rearrange; y = rearrange(x, 'b s h -> b h s')": "`fd.ops.rearrange`",
    "fd.output(x)": "did you mean `add_output`?",
    "D = fd.define_dim('D', 16); y = x[:, :, : D / 2]": "`D // 2` is half of the size `D`",
    "fd.ops.add_output(x)": "write `fd.add_output(x)`",
    "y = ops.relu(x)": "operations are methods of `fd.ops`",
    "y = relu(x)": "write `fd.ops.relu(...)`",
    "y = [t for t in x][0]": "`fd.ops.unbind(x, dim)`",
}
needs_no_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="PyTorch has these functions"
)
pytestmark = [needs_no_torch, pytest.mark.usefixtures("quiet")]


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusec.nvfuser.script._announce_standin", lambda: None)


def load(folder: Path, line: str, module: str = "nvfuser") -> Fusion:
    path = folder / "script.py"
    path.write_text(
        HEAD.replace("{LINE}", line.replace("; ", "\n    ")).replace("{MODULE}", module)
    )
    (fusion,) = load_script(path)
    return fusion


def lines(fusion: Fusion) -> list[str]:
    sizes = (" = size(", " = mul(size")
    return [t for t in map(op_text, fusion.nodes) if not any(s in t for s in sizes)]


def plain(fusion: Fusion) -> list[str]:
    """Return the operations without the names of what they make."""
    return [re.sub(r"\b([a-z]\w*_\d+|unused\d|[yz])\b", "_", line) for line in lines(fusion)]


@pytest.mark.parametrize(("part", "module"), [(0, "nvfuser"), (1, "fusec")])
def test_lines_with_one_meaning_are_read(part: int, module: str, tmp_path: Path) -> None:
    for line, own in [*READ.items()][part::2]:
        found, wanted = (load(tmp_path, text, module) for text in (line, own))
        assert [o.value.type for o in found.outputs] == [o.value.type for o in wanted.outputs], line
        assert plain(found) == plain(wanted), line


@pytest.mark.parametrize("part", range(2))
def test_the_line_to_write_is_accepted(part: int, tmp_path: Path) -> None:
    for line, wanted in [*MENDED.items()][part::2]:
        with pytest.raises(FusecError) as caught:
            load(tmp_path, line)
        told = caught.value.diagnostic
        written = re.search(r"write `([^`]*)`", told.help or "")
        assert written is not None, (line, told.help)
        assert wanted in (written[1], ""), (line, told.help)
        assert told.span is not None
        said = told.span.text[told.span.column - 1 :][: told.span.width]
        whole = written[1] if "y = " in written[1] else line.replace(said, written[1])
        if wanted:
            load(tmp_path, whole)


def test_other_lines_say_what_to_do(tmp_path: Path) -> None:
    for line, wanted in TOLD.items():
        with pytest.raises(FusecError) as caught:
            load(tmp_path, line)
        told = caught.value.diagnostic
        assert wanted in (told.help or ""), (line, told.help)
        assert told.span is not None
        assert told.span.text.strip() in line.split("; ")


def test_a_class_of_modules_says_how_to_import_it(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text("from torch import nn\n\n\nclass Net(nn.Module):\n    pass\n")
    with pytest.raises(FusecError, match="not a definition of a fusion") as caught:
        load_script(path)
    told = caught.value.diagnostic
    assert "fusec import" in (told.help or "")
    assert told.span is not None
    assert told.span.line == 4
