"""The help for what readers wrote wrong: the line, the place and the text to write."""

from __future__ import annotations

import pytest
from followed import error_of

HEAD = """fusion: f
dims: {B: 2, S: 8, H: {default: 16, multiple_of: 8}, NH: 4, D: {default: 4, multiple_of: 2}, V: 32}
inputs:
  x: f32[B, S, H]
  r: f32[B, S, H]
  w: f32[H]
  W: f32[H, H]
  q: f32[B, NH, S, D]
  h: f32[B, S, NH, D]
  g: f32[B, S, NH, D]
  m: bool[B, S, H]
  a: f32[B]
  c: f32[D]
  logits: f32[B, V]
  target: i64[B]
ops:
  - {LINE}
  - z = y + 1
outputs: [z]
"""
LINES = {
    "y = cat(x, r)": "`cat` takes a list of tensors: `cat(x, r)`",
    "y = x & 3": "write `y = cast(x, i32) & 3`",
    "y = softmax(x, dim=1, dtype=torch.float32, stable=True)":
        "no arguments `dtype` and `stable`",
    "y = softmax(x, dim=1, stable=True, dtype=torch.float32)":
        "write `y = softmax(cast(x, f32), 1)`",
    "y = layernorm(x, (H,))": "write `y = layer_norm(x, [H])`",
    "y = layernorm(x, w)": "write `y = layer_norm(x, [H], w)`",
    "y = permute(x, [0, 2, 1, 3])": "`permute` of 3 dims takes each of 0 to 2 once",
    "y = expand(w, [B, 8])": "write `y = expand(w, [B, -1])`",
    "def f(u): return u * 2": "write its body, `u * 2`, where `f` is called",
    "y = torch.stack([r[:, ::2], r[:, 1::2]])":
        "declare `S: {default: 8, multiple_of: 2}` under `dims:`",
    "y = np.linalg.norm(c)": "write `y = norm(c, 2.0)`; fusec has it for vectors",
    "y, v = h.permute(1, 0, 2, 3)": "write `y = permute(h, [1, 0, 2, 3])`",
    "y, k = stack([x, r]).permute(0, 2, 1, 3)":
        "write `y, k = unbind(permute(stack([x, r]), [0, 2, 1, 3]), 0)`",
    "y = reshape(x, [B, S, 3, 3])": "by default H is 16: 256 elements, not 144",
    "y = x.view(B, S, NH, D)": "declare `H: D * NH` under `dims:`, below `D`",
    "y = F.softmax(x)": "for the last dim: write `y = softmax(x, dim=-1)`",
    "y = torch.cat(x, r, dim=1)": "write `y = cat([x, r], 1)`",
    "y = cat([x, w], 0)": "`unsqueeze(w, 0)` inserts a dim",
    "y = cast(x * rsqrt(r)) * w, bf16)": "too many: write `y = cast(x * rsqrt(r) * w, bf16)`",
    "y = relu(x))": "one `)` too many: write `y = relu(x)`",
    "y = x & r": "for values that are not 0 write `logical_and(x, r)`",
    "y = (x > 0) & r": "write `y = (x > 0) & (r",
    "y = x + r# residual": "a comment begins with a blank and `#`",
    "y = lambda u: u + r": "op lines have no `lambda`",
    "y, = relu(x)": "write `y = relu(x)`",
    "y <- relu(x)": "write `y = relu(x)`",
    "y := relu(x)": "write `y = relu(x)`",
    "y = h = relu(x)": "write `h = relu(x)` and `y = set(h)`",
    "y = relu x": "operations are called: write `y = relu(x)`",
    "x++": "write `x_2 = x + 1`, and `x_2` for `x`",
    "y = torch.tensor(x, dtype=torch.bfloat16)": "write `y = cast(x, bf16)`",
    "y = torch.tensor([0, 2])": "`tensor` of PyTorch with `data=[0, 2]` has no equivalent",
    "y = x is None": "a value is never None",
    "y = !m": "write `y = logical_not(m)`",
    "y = where(x > 0 and r < 1, x, 0)": "write `y = where((x > 0) & (r < 1), x, 0)`",
    "y = where(x and r < 1, x, 0)": "write `y = where(logical_and(x, r < 1), x, 0)`",
    "y = where(x, x > 0, 0.0)": "the condition comes first: write `y = where(x > 0, x, 0.0)`",
    "y = torch.where(x, r, m)": "the condition comes first: write `y = where(m, x, r)`",
    "y = where(1.0, m, r)": "the condition comes first: write `y = where(m, 1.0, r)`",
    "y = where(x, m, m)": "compare it, or cast it to bool: write `y = where(x != 0, m, m)`",
    "y = where(x && r, x, 0)": "write `y = where(logical_and(x, r), x, 0)`",
    "y = where(x > 0 && r < 1, x, 0)": "write `y = where((x > 0) & (r < 1), x, 0)`",
    "y = x > 0 ? r : w": "write `y = where(x > 0, r, w)`",
    "y = F.cross_entropy(target, logits)": "write `y = cross_entropy(logits, target)`",
    "y = nn.LayerNorm(H)(x)":
        "write `y = layer_norm(x, [H], w, b)`, and declare `b: f32[H]` under `inputs:`",
    "y = nn.LayerNorm(16, 1e-3, bias=False)(x)": "write `y = layer_norm(x, [H], w, eps=0.001)`",
    "y = nn.LayerNorm((H,), eps=1e-6, elementwise_affine=False)(x)":
        "write `y = layer_norm(x, [H], eps=1e-06)`",
    "y = nn.LayerNorm([S, H], elementwise_affine=False)(x)": "write `y = layer_norm(x, [S, H])`",
    "y = nn.RMSNorm(D, eps=1e-6)(q)": "write `y = rms_norm(q, [D], c, eps=1e-06)`",
    "y = nn.RMSNorm(V, eps=1e-6, device=dev)(logits)":
        "write `y = rms_norm(logits, [V], w_2, eps=1e-06)`, and declare `w_2: f32[V]` under",
    "y = nn.GroupNorm(2, 8, affine=False)(x)": "write `y = group_norm(x, 2)`",
    "y = nn.GroupNorm(2, S, eps=1e-3)(x)": "write `y = group_norm(x, 2, w_2, b, eps=0.001)`, and "
        "declare `w_2: f32[S]` under `inputs:`, and declare `b: f32[S]` under `inputs:`",
    "y = nn.Linear(16, 2 * H)(x)":
        "write `y = linear(x, w_2, b)`, and declare `w_2: f32[2 * H, H]`",
    "y = nn.Linear(H, H, False)(x)": "write `y = linear(x, W)`",
    "y = nn.Embedding(V, H, max_norm=1.0)(target)": "functions are called, not modules",
    "y = nn.Embedding(V, H)(target)": "declare `w_2: f32[V, H]` under `inputs:`",
    "y = nn.LayerNorm(H)()": "functions are called, not modules or results",
    "y = nn.ReLU()()": "functions are called, not modules or results",
    "y = self.dropout(x)": "if it is `dropout`, write `y, _ = dropout(x, 0.5)`",
    "y = x + self.w": "write `y = x + w`",
    "y = x * self.fc.weight.T + self.eps":
        "write `y = x * fc_weight.T + eps`, and declare `fc_weight` and `eps: f32 = 1e-5` under",
    "y = x.view(B, S, self.num_heads, -1)": "and declare `num_heads` under `dims:`",
    "y = r + self.drop(x)":
        "write `dropout_2, _ = dropout(x, 0.5)`, and in this line `y = r + dropout_2`",
    "y = r + F.dropout(x, self.p, self.training)":
        "write `dropout_2, _ = dropout(x, 0.1)`, and in this line `y = r + dropout_2`",
    "y = self.norm(x + r)": "if it is a LayerNorm, write `y = layer_norm(x + r, [H], w",
    "y = self.fc2(F.gelu(self.fc1(x)))":
        "if `fc1` is a Linear and `fc2` is a Linear, write `y = linear(gelu(linear(x, fc1_w, "
        "fc1_b)), fc2_w, fc2_b)`, and declare `fc1_w: f32[N, H]`, `fc1_b: f32[N]`, `fc2_w",
    "y = x + self.mlp(self.norm2(x))": "write the lines of the forward of `self.mlp(",
    "y = nn.LayerNorm(H)(x + r)": "write `y = layer_norm(x + r, [H], w, b)`",
    "y = nn.Sequential(nn.Linear(H, H), nn.GELU())(x)": "write `y = gelu(linear(x, W, b))`",
    "y = nn.Linear(H, H)(nn.Linear(H, H)(x))":
        "write `y = linear(linear(x, w_2, b_2), W, b)`, and declare `w_2: f32[H, H]`",
    "y = einsum('bsh,bth->bsz', x, r)": "the operands have `b`, `s`, `h`, `t`",
    "y = einsum('bsh,bth->bst', x)": "name 2 operands, one for each group",
    "y = rearrange(x, 'b s (n d) -> b n s d')": "give one of them, as in `n=4`",
    "y = rearrange(x, 'b s -> s b')": "as in `b s (h d) -> b h s d`",
    "y, u, v = chunk(r, 4, -1)": "write `y, u, v, _ = chunk(r, 4, -1)`",
    "y, u, v, o = chunk(r, 2, -1)": "write `y, u, v, o = chunk(r, 4, -1)`",
    "y = x.to(input_dtype)": "as in `x.to(h.dtype)`",
    "y, u = torch.max(x, dim=1)": "write `y = max(x, dim=1)` and `u = argmax(x, dim=1)`",
    "y = einsum('hh->h', W)": "keeps the diagonal of `x`",
    "y = -gather(logits, 1, target)": "write `y = -gather(logits, unsqueeze(target, 1), 1)`",
    "y = x + epsilon": "declare `epsilon: f32 = 1e-5` under `inputs:`",
    "y = cast(x, bfp16)": "did you mean `bf16` or `f16`?",
    "y = torch.zeros(V, B).scatter_add(1, target, logits.mT)":
        "write `y = index_add(zeros([V, B]), target, transpose(logits, -2, -1), 1)`",
    "y = exp(*x)": "write `y = exp(x)`",
    "y = exp(x r)": "an operator is missing, as in `x * r`",
    "y = std::exp(x)": "write `exp`",
    "y = exp(%x)": "names have no `%`: write `x`",
    "y = x² + r": "write `x ** 2`",
    "y = float32(x)": "write `cast(x, f32)`",
    "y = sum([x for _ in range(2)])": "write `y = x + x`",
    "const auto y = exp(x)": "write `y = exp(x)`",
    "y = gather(x, 1)": "gather(arg, index, dim)",
    "y = f'{x}'": "without the `f`",
    "y = x + self.bias": "declare `bias` under `inputs:`",
    "y = checkpoint(fn, x)": "call the function itself",
    "y = F.scaled_dot_product_attention(x, r, r, attn_mask=amax(m, [2]))":
        "write `y = scaled_dot_product_attention(x, r, r, max(m, [2])[:, none, :])`",
    "y = F.pad(x, (1, 1), mode='replicate')": "with `mode=replicate` has no equivalent",
    "y = torch.meshgrid(a, c)": "write `y = expand(unsqueeze(a, 1), [B, D])`",
    "y, v = torch.meshgrid(a, c)": "and `v = expand(unsqueeze(c, 0), [B, D])`",
    "y = torch.where(x > 0)": "the shape of its result depends on the data",
    "y = torch.diag(relu(w))":
        "write `y = where(unsqueeze(arange(H), 1) == arange(H), unsqueeze(relu(w), -1), 0.0)`",
    "y: {op: mul, args: [x, 2]}": "write `- y = mul(x, 2)`",
    "y = topk(x, 2)\n  - u = y.values": "name both results in the line that makes them",
    "y = x[1.5]": "an index is an integer, a slice",
    "y = x[True]": "an index is an integer, a slice",
    "y = (x + r": "close the `(` with `)`",
    'y = softmax(x, dim="last")': "the last one is -1",
    "y = x.float16()": "write `y = cast(x, f16)`",
    "y = sdpa(q, q, q)": "write `y = scaled_dot_product_attention(q, q, q)`",
    "y = rotate_half(q)": "write `y = cat([-q[..., D // 2:], q[..., :D // 2]], -1)`",
    "y = rmsnorm(x, w)": "write `y = rms_norm(x, [H], w, 1e-06)`",
    "y = torch.fft.rfft(x)": "Fourier transforms have no kernels",
    "y = torch.linalg.inv(W)": "factorizations, inverses and solvers of matrices have no kernels",
    "y = F.one_hot(target)": "name the dim that is `num_classes`",
    "y = x[m].std()": "the shape of `x[mask]` depends on the data",
    "y = x[..., :8] * r[..., 8:]": "write `y = x[..., :H // 2] * r[..., H // 2:]`",
    "y = logits * arange(32)": "write `y = logits * arange(V)`",
    "y = x.split(4, 2)[0]": "write `y, _, _, _ = chunk(x, 4, 2)`",
    "y, v = W.split(2, -1)": "write `y, v = chunk(W, 2, -1)`",
    "y = linear(x, r)": "write `y = x @ transpose(r, -2, -1)`",
    "y = F.linear(x, r)": "write `y = x @ transpose(r, -2, -1)`",
    "y = linear(x, r, bias=x[:, :, 0])":
        "write `y = x @ transpose(r, -2, -1) + unsqueeze(x[:, :, 0], -2)`",
    "y = relu(linear(x, r) + 1)": "write `y = relu(x @ transpose(r, -2, -1) + 1)`",
    "y = linear(x, q)": "the weight of `linear` has 4 dims, expected [out, in]",
    "y = full([B, 4,096], 1.0)": "numbers have no separators: write `4096`",
    "y = x[:, 01]": "an integer does not begin with 0: `01`",
    "y = h @ g.transpose(1, 2)":
        "write `y = transpose(h, -3, -2) @ transpose(transpose(g, 1, 2), -2, -1)`",
    "y = softmax(q @ transpose(q, -2, -1), -1) @ h":
        "write `y = softmax(q @ transpose(q, -2, -1), -1) @ transpose(h, -3, -2)`",
    "y = reshape(full([B, 4, 8], 1.0), [B, V])":
        "`V // 4` for the last 8, and `V: {default: 32, multiple_of: 4}` under `dims:`",
    "y = x.squeeze(-1)": "write `y = set(x)`",
    "y = x.unflatten(-1, (2, 8))": "write `y = unflatten(x, -1, [2, -1])`",
    "y = repeat_interleave(x, 2.0, 1)":
        "sizes are integers: write `y = repeat_interleave(x, 2, 1)`",
    "y = x if x is not None else r": "write `y = set(x)`",
    "y = F.dropout(x, 0.1, self.training)": "write `y, _ = dropout(x, 0.1)`",
    "y = F.dropout(x, p=self.p)":
        "write `y, _ = dropout(x, 0.1)`, and instead of 0.1 the number that `self.p` is",
    "y = F.dropout(x * w, self.drop, self.training)":
        "write `y, _ = dropout(x * w, 0.1)`, and instead of 0.1 the number that `self.drop`",
    "y = x if self.training else r": "for training write `x` alone, for evaluation `r`",
    "y = softmax(x, dim=-1, dtype=f32)": "write `y = softmax(cast(x, f32), -1)`",
    "y = F.layer_norm(x, w, w)": "write `y = layer_norm(x, [H], w, w)`",
    "y = self.norm(x)": "if it is a LayerNorm, write `y = layer_norm(x, [H], w",
    "y := relu(x)\n  - v = 2 * y": "op lines have no `:=`",
    "y = x r": "an operator is missing, as in `x * r`",
    "return x - r": "write `out = x - r`, and list `out` under `outputs:`",
    "(y, v) = x.chunk(2, -1)": "write `y, v = chunk(x, 2, -1)`",
    "y, v = x, r": "write `y = set(x)` and `v = set(r)`",
    "y = x - r  // note": "`//` divides, and a comment begins with `#`",
    "y = x + a": "write `y = x + unsqueeze(unsqueeze(a, -1), -1)`",
    "y = x + w[:, none]": "write `y = x + squeeze(w[:, none], [1])`",
    "y = x * r ^ 2": "write `y = x * r ** 2`",
    "y = x * config.scale": "declare `scale` under `dims:` or `inputs:`",
    "y = x + 1j": "write `c64(0, 1)`",
    "x[m[:, :, 0]] = 0\n  - y = x * 2": "write `x_2 = where(m[:, :, 0]",
    "y = np.array([1.0, 2.0]) * x": "with `object=[1.0, 2.0]` has no equivalent",
    "y = [x, r]": "`stack([a, b], 0)` makes a tensor of several",
    "y = x, r": "write a line for each result",
    "y = x.grad": "gradients are not recorded",
    "y = x == None": "a value is never none",
    "y = torch.clip_grad_norm_(w, 1.0)":
        "write `y = w * minimum(1.0 / (norm(w) + 1e-06), 1.0)`",
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_the_help_says_what_to_write(line: str) -> None:
    error = error_of(HEAD.replace("{LINE}", line))
    assert error is not None
    assert LINES[line] in error.render()


FILE = """fusion: file
dims: {B: 64, H: 256}
inputs:
  x: f32[B, H]
  dy: f32[B, H]
ops:
  - y = relu(x)
  - z = dy * y
outputs: [y, z]
"""
FILES = {
    "no blank after the dash": ("  - z = ", "  -z = ", 8, "write `- z = dy * y`"),
    "no colon, at the end": ("outputs: [", "outputs [", 9, "write `outputs: [y, z]`"),
    "an assignment": ("x: f32", "x = f32", 4, "write `x: f32[B, H]`"),
    "a block": ("ops:\n", "ops: |\n", 6, "remove the `|` after `ops:`"),
    "an entry on the line of its section":
        ("inputs:\n  x: f32[B, H]\n  dy: f32[B, H]", "inputs: x: f32[B, H]", 3,
         "write `x: f32[B, H]` on a line below"),
    "a size without a name": ("x: f32[B", "x: f32[?", 4, "each size has a name"),
    "any rank": ("x: f32[B", "x: f32[...", 4, "each size has a name"),
    "no comma at the end of a line":
        ("{B: 64, H: 256}", "{\n  B: 64,\n  H: {default: 256}\n  K: 4}", 5,
         "write `,` at the end of line 4"),
    "an alias of another dtype":
        ("x: f32[B, H]\n  dy: f32[B, H]\nops:\n  - y = relu(x)\n  - z = dy * y\noutputs: [y, z]",
         "x: bf16[B, H]\n  dy: f32[B, H]\nops:\n  - z = dy * x\noutputs: [{z: {alias: x}}]",
         8, "write `z = cast(dy * x, bf16)`"),
    "an alias of another dtype, read by another line":
        ("x: f32[B, H]\n  dy: f32[B, H]\nops:\n  - y = relu(x)\n  - z = dy * y\noutputs: [y, z]",
         "x: bf16[B, H]\n  dy: f32[B, H]\nops:\n  - y = dy * x\n  - z = dy * y\n"
         "outputs: [{y: {alias: x}}, z]", 9, "put out `cast(y, bf16)`"),
    "two commas": ("H: 256}", "H: 256,, }", 2, "remove one `,`"),
    "shape and dtype": ("x: f32[B, H]", "x: {shape: [B, H], dtype: f32}", 4,
                        "write `x: f32[B, H]`"),
    "the shape first": ("x: f32[B, H]", "x: [B, H] f32", 4, "write `x: f32[B, H]`"),
    "no `ops:`": ("ops:\n", "", 6, "op lines stand under `ops:`"),
    "a type in a flow mapping":
        ("inputs:\n  x: f32[B, H]\n  dy: f32[B, H]", "inputs: {x: f32[B, H]}", 3,
         'quote the type, as in `{x: "f32[B, H]"}`'),
    "outputs without brackets": ("[y, z]", "y, z", 9, "write `outputs: [y, z]`"),
    "outputs below each other": (" [y, z]", "\n  y\n  z", 10, "write `outputs: [y, z]`"),
    "outputs with types": (" [y, z]", "\n  y: f32[B, H]\n  z: f32[B, H]", 10,
                           "write `outputs: [y, z]`"),
    "outputs with a blank": ("[y, z]", "[y z]", 9, "a comma is missing: write `y, z`"),
    "an output that is computed": ("[y, z]", "[y, z * 2]", 9, "write `- y_2 = z * 2`"),
    "another name of a section": ("outputs:", "return:", 9, "did you mean `outputs`?"),
    "a float for a size": ("B: 64", "B: 64.0", 2, "write `B: 64`"),
    "a power for a size": ("B: 64", "B: 2**6", 2, "write `B: 64`"),
    "a comma in a size": ("B: 64", "B: 4,096", 2, "numbers have no separators: write `4096`"),
    "a comma in a shape": ("x: f32[B, H]", "x: f32[4,096, H]", 4,
                           "numbers have no separators: write `4096`"),
    "a bool of YAML": ("  dy:", "  t: bool = yes\n  dy:", 5, "write `t: bool = true`"),
    "a bool that is off": ("  dy:", "  t: bool = Off\n  dy:", 5, "write `t: bool = false`"),
    "a bool that is a word": ("  dy:", "  t: bool = maybe\n  dy:", 5, "write `t: bool = true`"),
    "a percentage": ("  dy:", "  p: f32 = 12.5%\n  dy:", 5, "write `p: f32 = 0.125`"),
    "an output of another name": ("[y, z]", "[y, result]", 9,
                                  "`z` is computed and not read: write `z`"),
    "text for a size": ("B: 64", "B: 'n'", 2, "write `B: 4096`"),
    "a default without its sign": ("  dy:", "  eps: f32 1e-5\n  dy:", 5,
                                   "write `eps: f32 = 1e-5`"),
    "a default that is a word": ("  dy:", "  eps: f32 = small\n  dy:", 5,
                                 "write a number, as in `eps: f32 = 1e-5`"),
    "a mesh axis for a dim": ("dims:", "mesh: {dp: 2}\ndims:", 5, "dims are numbered"),
    "Python": (FILE, "def f(x):\n    return x\n", 1, "this is Python, not YAML"),
    "a module": (FILE, "import torch\n\nclass Block(torch.nn.Module):\n    pass\n", 1,
                 "`fusec import MODEL.pt2 -o DIR`"),
    "sizes with `=`": ("{B: 64, H: 256}", "B=64, H=256", 2, "write `dims: {B: 64, H: 256}`"),
    "a size that varies": ("B: 64", "B: dynamic", 2, "all sizes vary at run time"),
    "a question mark for a size": ("B: 64", "B: ?", 2, "write a default, as in `T: 4096`"),
    "parentheses for a shape": ("x: f32[B, H]", "x: f32(B, H)", 4, "`f32[B, H]`"),
    "a shape without commas": ("x: f32[B, H]", "x: f32[B H]", 4, "write `f32[B, H]`"),
    "a shape of C": ("x: f32[B, H]", "x: f32[B][H]", 4, "write `f32[B, H]`"),
    "inputs as a list": ("  x: f32", "  - x: f32", 4, "write `x: f32[B, H]`, without the `- `"),
    "two inputs on a line": ("x: f32[B, H]\n  dy: f32[B, H]", "x, dy: f32[B, H]", 4,
                             "write `x: f32[B, H]` and `dy: f32[B, H]`"),
    "a quotient for a default": ("  dy:", "  eps: f32 = 1/100\n  dy:", 5,
                                 "write `eps: f32 = 0.01`"),
    "a default without a type": ("ops:", "  eps = 0.01\nops:", 6, "write `eps: f32 = 0.01`"),
    "an empty entry": ("ops:\n", "ops:\n  -\n", 7, "remove this `-`"),
    "an op line in brackets": ("- y = relu(x)", "- [y = relu(x)]", 7, "write `- y = relu(x)`"),
    "a star for a dash": ("  - y", "  * y", 7, "write `- y = relu(x)`"),
    "a plus for a dash": ("  - y", "  + y", 7, "write `- y = relu(x)`"),
    "a number for a dash": ("  - y", "  1. y", 7, "write `- y = relu(x)`"),
    "a long dash": ("  - y", "  \u2013 y", 7, "write `- y = relu(x)`"),
    "two dashes": ("  - y", "  - - y", 7, "write `- y = relu(x)`"),
    "names of MLIR": ("- y = relu(x)", "- %y = relu(%x)", 7, "write `- y = relu(x)`"),
    "a declaration": ("- y = relu(x)", "- let y = relu(x)", 7, "write `y = relu(x)`"),
    "a declaration of C": ("- y = relu(x)", "- float y = relu(x)", 7, "write `y = relu(x)`"),
    "a cast of C": ("- y = relu(x)", "- y = (bf16)x", 7, "write `y = cast(x, bf16)`"),
    "a cast of Rust": ("- y = relu(x)", "- y = x as bf16", 7, "write `y = cast(x, bf16)`"),
    "indented less": ("  dy:", " dy:", 5, "is indented by 1 blank, and the one above by 2"),
    "indented more": ("  dy:", "   dy:", 5, "align it with line 4: write `  dy: "),
    "a section indented": ("dims:", " dims:", 2, "align it with line 1: write `dims: "),
    "a quote that is not closed": ("x: f32[B, H]", 'x: "f32[B, H]', 4, "close it with the same"),
    "outputs in parentheses": ("[y, z]", "(y, z)", 9, "write `outputs: [y, z]`"),
    "an arrow for an alias": ("[y, z]", "[z, y -> x]", 9, "write `- y: {alias: x}`"),
    "a dim as an output": ("[y, z]", "[y, B]", 9, "the caller knows it: remove it"),
    "a phase without brackets":
        ("outputs: [y, z]\n", "outputs: [y, z]\nphases: {forward: y, backward: [z]}\n", 10,
         "write `[y]`"),
    "an assignment of a scalar": ("  dy:", "  eps = f32 1e-5\n  dy:", 5, "write `eps: f32 = 1e-5`"),
    "a size on the line of its section":
        ("dims: {B: 64, H: 256}", "dims: B=64\n  H: 256", 2, "write `B: 64` on a line below"),
    "a float that is no size": ("B: 64", "B: 64.5", 2, "a size is an integer: write `B: 64`"),
    "Python after an import":
        (FILE, "import torch\n\n@torch.compile\ndef f(x):\n    return x\n", 1, "this is Python"),
    "a mesh axis without a number": ("dims:", "mesh: {tp: two}\ndims:", 2,
                                     "write the number of ranks, as in `tp: 2`"),
    "a phase without outputs":
        ("outputs: [y, z]\n", "outputs: [y, z]\nphases:\n  forward: [y]\n  b: []\n", 12,
         "output `z` is in no phase"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_the_place_and_the_help_are_right(name: str) -> None:
    old, new, line, help = FILES[name]
    assert old in FILE
    text = FILE.replace(old, new, 1)
    if name == "a mesh axis for a dim":
        text = text.replace("x: f32[B, H]", 'x: {type: "f32[B, H]", shard: {dp: 0}}')
    error = error_of(text)
    assert error is not None
    assert help in error.render()
    assert error.diagnostic.span is not None
    assert error.diagnostic.span.line == line
