"""Functions of public model code and of attention libraries, in the form of `pytorch.py`."""

LINES = """
sdpa(query, key, value, attn_mask=none, dropout_p=0.0, is_causal=false, scale=none,
    enable_gqa=false) -> scaled_dot_product_attention(query, key, value, attn_mask, dropout_p,
    is_causal, scale=scale, enable_gqa=enable_gqa)
attention(query, key, value, mask=none) -> scaled_dot_product_attention(query, key, value, mask)
flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=none, causal=false) ->
    transpose(scaled_dot_product_attention(transpose(q, 1, 2), transpose(k, 1, 2), transpose(v, 1,
    2), dropout_p=dropout_p, is_causal=causal, scale=softmax_scale), 1, 2)
flash_attention(q, k, v, causal=false) -> scaled_dot_product_attention(q, k, v, is_causal=causal)
memory_efficient_attention(query, key, value) ->
    transpose(scaled_dot_product_attention(transpose(query, 1, 2), transpose(key, 1, 2),
    transpose(value, 1, 2)), 1, 2)
rotate_half(x) -> cat([-x[..., size(x, -1) // 2:], x[..., :size(x, -1) // 2]], -1)
apply_rotary_pos_emb(q, k, cos, sin) -> q * cos + cat([-q[..., size(q, -1) // 2:], q[..., :size(q,
    -1) // 2]], -1) * sin
repeat_kv(hidden_states, n_rep) -> repeat_interleave(hidden_states, n_rep, 1)
gelu_new(x) -> gelu(x, approximate=tanh)
gelu_fast(x) -> gelu(x, approximate=tanh)
gelu_pytorch_tanh(x) -> gelu(x, approximate=tanh)
gelu_tanh(x) -> gelu(x, approximate=tanh)
approx_gelu(x) -> gelu(x, approximate=tanh)
quick_gelu(x) -> x * sigmoid(1.702 * x)
relu2(x) -> square(relu(x))
relu_squared(x) -> square(relu(x))
squared_relu(x) -> square(relu(x))
swiglu(x, up=none) -> {up=none} silu(x[..., :size(x, -1) // 2]) * x[..., size(x, -1) // 2:] |
    silu(x) * up
geglu(x, up=none) -> {up=none} gelu(x[..., :size(x, -1) // 2]) * x[..., size(x, -1) // 2:] | gelu(x)
    * up
reglu(x, up=none) -> {up=none} relu(x[..., :size(x, -1) // 2]) * x[..., size(x, -1) // 2:] | relu(x)
    * up
modulate(x, shift, scale) -> x * (1 + unsqueeze(scale, 1)) + unsqueeze(shift, 1)
rmsnorm(x, weight=none, eps=1e-6) -> {weight=none} rms_norm(x, [size(x, -1)], eps=eps) | rms_norm(x,
    [size(x, -1)], weight, eps)
layernorm(x, weight=none, bias=none, eps=1e-5) -> {weight:tensor} layer_norm(x, [size(x, -1)],
    weight, bias, eps) | {bias=none} layer_norm(x, weight, eps=eps)
l2norm(x, dim=-1) -> normalize(x, dim=dim)
l2_norm(x, dim=-1) -> normalize(x, dim=dim)
l2_normalize(x, dim=-1) -> normalize(x, dim=dim)
mse(input, target) -> mse_loss(input, target)
mae(input, target) -> l1_loss(input, target)
bce(input, target) -> binary_cross_entropy(input, target)
bce_loss(input, target) -> binary_cross_entropy(input, target)
bce_with_logits(input, target) -> binary_cross_entropy_with_logits(input, target)
ce(input, target) -> cross_entropy(input, target)
ce_loss(input, target) -> cross_entropy(input, target)
cross_entropy_loss(input, target) -> cross_entropy(input, target)
extract(a, t, x_shape=none) -> {x_shape:any} reshape(index_select(a, t, 0), [-1, 1, 1, 1])  # for
    images of 4 dims
divmod(a, b) -> a // b  # and a % b
inverse_sigmoid(x) -> logit(clamp(x, 1e-5, 0.99999))
"""
