"""ATen's overloads in terms of fusec, in the form of `pytorch.py`; keys are `name.overload`.

Operations that PyTorch decomposes before a graph is exported are not here.
"""

LINES = """
abs.default(self) = abs(self)
acos.default(self) = acos(self)
acosh.default(self) = acosh(self)
_adaptive_avg_pool2d.default(self, output_size) -> mean(self, [2, 3], true)  # of output_size 1
add.Scalar(self, other, alpha=1) = self + other | self + alpha * other
add.Tensor(self, other, alpha=1) = self + other | self + alpha * other
addcdiv.default(self, tensor1, tensor2, value=1) = addcdiv(self, tensor1, tensor2, value)
addcmul.default(self, tensor1, tensor2, value=1) = addcmul(self, tensor1, tensor2, value)
addmm.default(self, mat1, mat2, beta=1, alpha=1) = self + mat1 @ mat2 | self + alpha * (mat1 @
    mat2) | beta * self + mat1 @ mat2 | beta * self + alpha * (mat1 @ mat2)
alias.default(self) = set(self)
all.default(self) = all(self)
all.dim(self, dim, keepdim=false) = all(self, [dim], keepdim)
amax.default(self, dim=none, keepdim=false) = max(self, dim, keepdim)
amin.default(self, dim=none, keepdim=false) = min(self, dim, keepdim)
__and__.Scalar(self, other) = bitwise_and(self, other)
__and__.Tensor(self, other) = bitwise_and(self, other)
any.default(self) = any(self)
any.dim(self, dim, keepdim=false) = any(self, [dim], keepdim)
any.dims(self, dim=none, keepdim=false) = any(self, dim, keepdim)
arange.default(end, dtype=none, layout=none, device=none, pin_memory=none) = iota(end, dtype=dtype)
arange.start(start, end, dtype=none, layout=none, device=none, pin_memory=none) = arange(start,
    end, dtype=dtype)
arange.start_step(start, end, step=1, dtype=none, layout=none, device=none, pin_memory=none) =
    arange(start, end, step, dtype)
argmax.default(self, dim=none, keepdim=false) = argmax(self, [dim], keepdim) | argmax(self)
argmin.default(self, dim=none, keepdim=false) = argmin(self, [dim], keepdim) | argmin(self)
asin.default(self) = asin(self)
asinh.default(self) = asinh(self)
atan.default(self) = atan(self)
atan2.default(self, other) = atan2(self, other)
atanh.default(self) = atanh(self)
baddbmm.default(self, batch1, batch2, beta=1, alpha=1) = self + batch1 @ batch2 | self + alpha *
    (batch1 @ batch2) | beta * self + batch1 @ batch2 | beta * self + alpha * (batch1 @ batch2)
bitwise_and.Scalar(self, other) = bitwise_and(self, other)
bitwise_and.Tensor(self, other) = bitwise_and(self, other)
bitwise_left_shift.Tensor(self, other) = bitwise_left_shift(self, other)
bitwise_not.default(self) = bitwise_not(self)
bitwise_or.Scalar(self, other) = bitwise_or(self, other)
bitwise_or.Tensor(self, other) = bitwise_or(self, other)
bitwise_right_shift.Tensor(self, other) = bitwise_right_shift(self, other)
bitwise_xor.Scalar(self, other) = bitwise_xor(self, other)
bitwise_xor.Tensor(self, other) = bitwise_xor(self, other)
bmm.default(self, mat2) = matmul(self, mat2)
broadcast_to.default(self, size) = expand(self, size)
cat.default(tensors, dim=0) = cat(tensors, dim)
ceil.default(self) = ceil(self)
celu.default(self, alpha=1.0) = celu(self, alpha)
chunk.default(self, chunks, dim=0) = chunk(self, chunks, dim)
clamp.default(self, min=none, max=none) = clamp(self, min, max) | maximum(self, min) |
    minimum(self, max)
clamp.Tensor(self, min=none, max=none) = clamp(self, min, max) | maximum(self, min) |
    minimum(self, max)
clamp_max.default(self, max) = minimum(self, max)
clamp_min.default(self, min) = maximum(self, min)
clone.default(self, memory_format=none) = set(self)
concat.default(tensors, dim=0) = cat(tensors, dim)
constant_pad_nd.default(self, pad, value=0) = pad(self, pad, value)
contiguous.default(self, memory_format=none) = set(self)
conv1d.default(input, weight, bias=none, stride=1, padding=0, dilation=1, groups=1) ->
    linear(input, weight, bias)  # of windows side by side; `fusec import` converts them, and
    depthwise ones along one dim
conv2d.default(input, weight, bias=none, stride=1, padding=0, dilation=1, groups=1) ->
    linear(input, weight, bias)  # of windows side by side, which `fusec import` converts
copy.default(self, src, non_blocking=false) -> set(src)  # expanded to the shape of `self`, and
    cast to its type
cos.default(self) = cos(self)
cosh.default(self) = cosh(self)
cosine_similarity.default(x1, x2, dim=1, eps=1e-08) = cosine_similarity(x1, x2, dim, eps)
count_nonzero.default(self, dim=none) = count_nonzero(self, dim)
count_nonzero.dim_IntList(self, dim) = count_nonzero(self, dim)
cumprod.default(self, dim, dtype=none) = cumprod(self, dim)
cumsum.default(self, dim, dtype=none) = cumsum(self, dim)
detach.default(self) = set(self)
diff.default(self, n=1, dim=-1, prepend=none, append=none) -> narrow(self, dim, 1, length) -
    narrow(self, dim, 0, length)  # length: the extent less 1
div.Scalar(self, other) = self / other
div.Scalar_mode(self, other, rounding_mode) -> floor_divide(self, other)  # rounding_mode floor
div.Tensor(self, other) = self / other
div.Tensor_mode(self, other, rounding_mode) -> floor_divide(self, other)  # rounding_mode floor;
    of trunc and integers div(self, other)
dropout.default(input, p, train) -> dropout(input, p)  # results: the output, the mask
elu.default(self, alpha=1, scale=1, input_scale=1) = elu(self, alpha)
embedding.default(weight, indices, padding_idx=-1, scale_grad_by_freq=false, sparse=false) =
    embedding_fwd(indices, weight)
empty.memory_format(size, dtype=none, layout=none, device=none, pin_memory=none,
    memory_format=none) -> zeros(size, dtype)
empty_like.default(self, dtype=none, layout=none, device=none, pin_memory=none,
    memory_format=none) -> zeros_like(self, dtype)
empty_permuted.default(size, physical_layout=none, dtype=none, layout=none, device=none,
    pin_memory=none) -> zeros(size, dtype)  # in any layout
eq.Scalar(self, other) = eq(self, other)
eq.Tensor(self, other) = eq(self, other)
erf.default(self) = erf(self)
erfc.default(self) = erfc(self)
erfinv.default(self) = erfinv(self)
exp.default(self) = exp(self)
exp2.default(self) = exp2(self)
expand.default(self, size, implicit=false) = expand(self, size)
expm1.default(self) = expm1(self)
fill.Scalar(self, value) = full_like(self, value)
fill.Tensor(self, value) -> full_like(self, value)
flatten.using_ints(self, start_dim=0, end_dim=-1) = flatten(self, start_dim, end_dim)
flip.default(self, dims) = flip(self, dims)
floor.default(self) = floor(self)
floor_divide.default(self, other) = floor_divide(self, other)
floor_divide.Scalar(self, other) = floor_divide(self, other)
fmod.Scalar(self, other) = fmod(self, other)
fmod.Tensor(self, other) = fmod(self, other)
frac.default(self) = frac(self)
full.default(size, fill_value, dtype=none, layout=none, device=none, pin_memory=none) = full(size,
    fill_value, dtype)
full_like.default(self, fill_value, dtype=none, layout=none, device=none, pin_memory=none,
    memory_format=none) = full_like(self, fill_value, dtype)
gather.default(self, dim, index, sparse_grad=false) = gather(self, index, dim)
ge.Scalar(self, other) = ge(self, other)
ge.Tensor(self, other) = ge(self, other)
gelu.default(self, approximate=none) = gelu(self, approximate)
glu.default(self, dim=-1) = glu(self, dim)
group_norm.default(input, num_groups, weight=none, bias=none, eps=1e-05, cudnn_enabled=true) =
    group_norm(input, num_groups, weight, bias, eps)
_grouped_mm.default(self, mat2, offs=none, bias=none, out_dtype=none) = grouped_mm(self, mat2,
    offs, bias=bias, dtype=out_dtype)
gt.Scalar(self, other) = gt(self, other)
gt.Tensor(self, other) = gt(self, other)
hardshrink.default(self, lambd=0.5) = hardshrink(self, lambd)
hardsigmoid.default(self) = hardsigmoid(self)
hardswish.default(self) = hardswish(self)
hardtanh.default(self, min_val=-1, max_val=1) = hardtanh(self, min_val, max_val)
hypot.default(self, other) = hypot(self, other)
index.Tensor(self, indices) -> index_select(self, index, 0)  # of one index for the first dim;
    more indices: reshape, and number the elements
index_add.default(self, dim, index, source, alpha=1) = index_add(self, index, source, dim) |
    index_add(self, index, alpha * source, dim)
index_copy.default(self, dim, index, source) -> scatter(self, index, source, dim)  # the index in
    the shape of the source
index_put.default(self, indices, values, accumulate=false) -> index_put_accumulate(self, index,
    values)  # with accumulate; else scatter
index_select.default(self, dim, index) = index_select(self, index, dim)
isfinite.default(self) = isfinite(self)
isinf.default(self) = isinf(self)
isnan.default(self) = isnan(self)
layer_norm.default(input, normalized_shape, weight=none, bias=none, eps=1e-05,
    cudnn_enable=true) = layer_norm(input, normalized_shape, weight, bias, eps)
le.Scalar(self, other) = le(self, other)
le.Tensor(self, other) = le(self, other)
leaky_relu.default(self, negative_slope=0.01) = leaky_relu(self, negative_slope)
lerp.Scalar(self, end, weight) = lerp(self, end, weight)
lerp.Tensor(self, end, weight) = lerp(self, end, weight)
lift_fresh_copy.default(self) = set(self)
linalg_vector_norm.default(self, ord=2, dim=none, keepdim=false, dtype=none) = norm(self, ord, dim,
    keepdim)
linear.default(input, weight, bias=none) = linear(input, weight, bias)
log.default(self) = log(self)
log10.default(self) = log10(self)
log1p.default(self) = log1p(self)
log2.default(self) = log2(self)
log_sigmoid.default(self) = logsigmoid(self)
_log_softmax.default(self, dim, half_to_float=false) = log_softmax(self, dim)
log_softmax.int(self, dim, dtype=none) = log_softmax(self, dim)
logaddexp.default(self, other) = logaddexp(self, other)
logical_and.default(self, other) = logical_and(self, other)
logical_not.default(self) = logical_not(self)
logical_or.default(self, other) = logical_or(self, other)
logical_xor.default(self, other) = logical_xor(self, other)
logit.default(self, eps=none) = logit(self)
logsumexp.default(self, dim, keepdim=false) = logsumexp(self, dim, keepdim)
lt.Scalar(self, other) = lt(self, other)
lt.Tensor(self, other) = lt(self, other)
masked_fill.Scalar(self, mask, value) = masked_fill(self, mask, value)
masked_fill.Tensor(self, mask, value) = masked_fill(self, mask, value)
matmul.default(self, other) = matmul(self, other)
max.default(self) = max(self)
max.dim(self, dim, keepdim=false) -> max(self, [dim], keepdim)  # and argmax(self, [dim], keepdim)
    for the indices
max.other(self, other) = maximum(self, other)
maximum.default(self, other) = maximum(self, other)
mean.default(self, dtype=none) = mean(self, dtype=dtype)
mean.dim(self, dim=none, keepdim=false, dtype=none) = mean(self, dim, keepdim, dtype)
mH.default(self) = transpose(self, -2, -1)
min.default(self) = min(self)
min.dim(self, dim, keepdim=false) -> min(self, [dim], keepdim)  # and argmin(self, [dim], keepdim)
    for the indices
min.other(self, other) = minimum(self, other)
minimum.default(self, other) = minimum(self, other)
mish.default(self) = mish(self)
mm.default(self, mat2) = matmul(self, mat2)
movedim.int(self, source, destination) = movedim(self, source, destination)
mse_loss.default(self, target, reduction=1) = mse_loss(self, target)
mT.default(self) = transpose(self, -2, -1)
mul.Scalar(self, other) = self * other
mul.Tensor(self, other) = self * other
multiply.Tensor(self, other) = self * other
mv.default(self, vec) = matmul(self, vec)
nan_to_num.default(self, nan=none, posinf=none, neginf=none) = nan_to_num(self) |
    nan_to_num(self, nan, posinf, neginf)
narrow.default(self, dim, start, length) = narrow(self, dim, start, length)
native_batch_norm.default(input, weight, bias, running_mean, running_var, training, momentum, eps)
    -> batch_norm(input, weight, bias, running_mean, running_var, momentum, eps, training)
_native_batch_norm_legit_functional.default(input, weight, bias, running_mean, running_var,
    training, momentum, eps) -> batch_norm(input, weight, bias, running_mean, running_var,
    momentum, eps, training)
native_dropout.default(input, p, train=true) = dropout(input, p)
native_group_norm.default(input, weight, bias, N, C, HxW, group, eps) -> group_norm(input, group,
    weight, bias, eps)  # var_mean of the groups for its other results
native_layer_norm.default(input, normalized_shape, weight, bias, eps) -> layer_norm(input,
    normalized_shape, weight, bias, eps)  # var_mean for its other results
ne.Scalar(self, other) = ne(self, other)
ne.Tensor(self, other) = ne(self, other)
neg.default(self) = neg(self)
new_full.default(self, size, fill_value, dtype=none, layout=none, device=none, pin_memory=none) ->
    full(size, fill_value, dtype)  # dtype: that of `self`
new_ones.default(self, size, dtype=none, layout=none, device=none, pin_memory=none) -> ones(size,
    dtype)  # dtype: that of `self`
new_zeros.default(self, size, dtype=none, layout=none, device=none, pin_memory=none) ->
    zeros(size, dtype)  # dtype: that of `self`
nll_loss_forward.default(self, target, weight, reduction, ignore_index) -> nll_loss(self, target,
    ignore_index)  # reduction 1
normalize.default(self, p=2.0, dim=1, eps=1e-12) = normalize(self, p, dim, eps)
numpy_T.default(self) = permute(self, [1, 0])
one_hot.default(self, num_classes=-1) = one_hot(self, num_classes)
ones.default(size, dtype=none, layout=none, device=none, pin_memory=none) = ones(size, dtype)
ones_like.default(self, dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
    = ones_like(self, dtype)
__or__.Scalar(self, other) = bitwise_or(self, other)
__or__.Tensor(self, other) = bitwise_or(self, other)
outer.default(self, vec2) -> unsqueeze(self, 1) * vec2
pad.default(self, pad, mode=constant, value=none) = pad(self, pad) | pad(self, pad, value)
permute.default(self, dims) = permute(self, dims)
polar.default(abs, angle) = complex(abs * cos(angle), abs * sin(angle))
pow.Scalar(self, exponent) = self ** exponent
pow.Tensor_Scalar(self, exponent) = self ** exponent
pow.Tensor_Tensor(self, exponent) = self ** exponent
prelu.default(self, weight) = prelu(self, weight)
prod.default(self, dtype=none) = prod(self, dtype=dtype)
prod.dim_int(self, dim, keepdim=false, dtype=none) = prod(self, [dim], keepdim, dtype)
rand_like.default(self, dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
    = rand_like(self)
randn_like.default(self, dtype=none, layout=none, device=none, pin_memory=none,
    memory_format=none) = randn_like(self)
reciprocal.default(self) = reciprocal(self)
relu.default(self) = relu(self)
relu6.default(self) = relu6(self)
remainder.Scalar(self, other) = remainder(self, other)
remainder.Tensor(self, other) = remainder(self, other)
repeat.default(self, repeats) = repeat(self, repeats)
repeat_interleave.self_int(self, repeats, dim=none, output_size=none) = repeat_interleave(self,
    repeats, dim)
reshape.default(self, shape) = reshape(self, shape)
rms_norm.default(input, normalized_shape, weight=none, eps=none) -> rms_norm(input,
    normalized_shape, weight, eps)  # without eps: that of f32 for 16-bit floats
roll.default(self, shifts, dims=none) = roll(self, shifts, dims)
rot90.default(self, k=1, dims=none) -> flip(transpose(self, 0, 1), [0])  # of a matrix, k=1
round.default(self) = round(self)
rsqrt.default(self) = rsqrt(self)
rsub.Scalar(self, other, alpha=1) = other - self | other - alpha * self
rsub.Tensor(self, other, alpha=1) = other - self | other - alpha * self
scalar_tensor.default(s, dtype=none, layout=none, device=none, pin_memory=none) = full([], s, dtype)
scaled_dot_product_attention.default(query, key, value, attn_mask=none, dropout_p=0.0,
    is_causal=false, scale=none, enable_gqa=false) = scaled_dot_product_attention(query, key,
    value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
_scaled_dot_product_efficient_attention.default(query, key, value, attn_bias,
    compute_log_sumexp=false, dropout_p=0.0, is_causal=false, scale=none) ->
    scaled_dot_product_attention(query, key, value, attn_bias, dropout_p, is_causal, scale)
_scaled_dot_product_flash_attention.default(query, key, value, dropout_p=0.0, is_causal=false,
    return_debug_mask=false, scale=none) -> scaled_dot_product_attention(query, key, value, none,
    dropout_p, is_causal, scale)
_scaled_dot_product_flash_attention_for_cpu.default(query, key, value, dropout_p=0.0,
    is_causal=false, attn_mask=none, scale=none) -> sdpfa_fwd(query, key, value, none, attn_mask,
    dropout_p, is_causal, scale)  # its first two results
_scaled_dot_product_flash_attention_for_cpu_backward.default(grad_out, query, key, value, out,
    logsumexp, dropout_p, is_causal, attn_mask=none, scale=none) -> sdpfa_bwd(grad_out, query,
    key, value, out, logsumexp, dropout_p, is_causal, scale=scale, mask=attn_mask)
scatter.src(self, dim, index, src) = scatter(self, index, src, dim)
scatter.value(self, dim, index, value) -> scatter(self, index, full_like(index, value, dtype),
    dim)  # dtype: that of `self`
scatter_add.default(self, dim, index, src) = scatter_add(self, index, src, dim)
select.int(self, dim, index) = select(self, index, dim)
select_scatter.default(self, src, dim, index) -> update_slice(self, unsqueeze(src, dim), starts)
    # starts: index in place `dim`, else 0
selu.default(self) = selu(self)
sigmoid.default(self) = sigmoid(self)
sign.default(self) = sign(self)
silu.default(self) = silu(self)
sin.default(self) = sin(self)
sinh.default(self) = sinh(self)
slice.Tensor(self, dim=0, start=none, end=none, step=1) -> slice(self, starts, ends, strides)  #
    in place `dim`: start, end, step; else all of a dim
slice_scatter.default(self, src, dim=0, start=none, end=none, step=1) -> update_slice(self, src,
    starts)  # starts: start in place `dim`, else 0; steps of 1
_softmax.default(self, dim, half_to_float=false) = softmax(self, dim)
softmax.int(self, dim, dtype=none) = softmax(self, dim)
softplus.default(self, beta=1, threshold=20) = softplus(self, beta, threshold)
softshrink.default(self, lambd=0.5) = softshrink(self, lambd)
sort.default(self, dim=-1, descending=false) = sort(self, dim, descending)
special_expit.default(self) = sigmoid(self)
split.sizes(self, split_size, dim=0) = split(self, split_size, dim)
split.Tensor(self, split_size, dim=0) = split(self, split_size, dim)
split_with_sizes.default(self, split_sizes, dim=0) = split(self, split_sizes, dim)
sqrt.default(self) = sqrt(self)
square.default(self) = square(self)
squeeze.default(self) -> squeeze(self, dims)  # dims: those of extent 1
squeeze.dim(self, dim) = squeeze(self, [dim])
squeeze.dims(self, dim) = squeeze(self, dim)
stack.default(tensors, dim=0) = stack(tensors, dim)
std.correction(self, dim=none, correction=1, keepdim=false) = std(self, dim, correction, keepdim)
std.dim(self, dim, unbiased=true, keepdim=false) = std(self, dim, keepdim=keepdim)
sub.Scalar(self, other, alpha=1) = self - other | self - alpha * other
sub.Tensor(self, other, alpha=1) = self - other | self - alpha * other
sum.default(self, dtype=none) = sum(self, dtype=dtype)
sum.dim_IntList(self, dim=none, keepdim=false, dtype=none) = sum(self, dim, keepdim, dtype)
swapaxes.default(self, axis0, axis1) = transpose(self, axis0, axis1)
t.default(self) = permute(self, [1, 0])
take_along_dim.default(self, indices, dim) = take_along_axis(self, indices, dim)
tan.default(self) = tan(self)
tanh.default(self) = tanh(self)
tensor_split.sections(self, sections, dim=0) = chunk(self, sections, dim)
tile.default(self, dims) = repeat(self, dims)
to.device(self, device, dtype, non_blocking=false, copy=false, memory_format=none) = cast(self,
    dtype)
to.dtype(self, dtype, non_blocking=false, copy=false, memory_format=none) = cast(self, dtype)
to.dtype_layout(self, dtype=none, layout=none, device=none, pin_memory=none, non_blocking=false,
    copy=false, memory_format=none) = cast(self, dtype) | set(self)
_to_copy.default(self, dtype=none, layout=none, device=none, pin_memory=none, non_blocking=false,
    memory_format=none) = cast(self, dtype) | set(self)
topk.default(self, k, dim=-1, largest=true, sorted=true) = topk(self, k, dim, largest, sorted)
transpose.int(self, dim0, dim1) = transpose(self, dim0, dim1)
tril.default(self, diagonal=0) = tril(self, diagonal)
triu.default(self, diagonal=0) = triu(self, diagonal)
true_divide.Tensor(self, other) = self / other
trunc.default(self) = trunc(self)
type_as.default(self, other) -> cast(self, bf16)  # with the type of `other`
unbind.int(self, dim=0) = unbind(self, dim)
unflatten.int(self, dim, sizes) = unflatten(self, dim, sizes)
unsafe_split.Tensor(self, split_size, dim=0) = split(self, split_size, dim)
_unsafe_view.default(self, size) = reshape(self, size)
unsqueeze.default(self, dim) = unsqueeze(self, dim)
var.correction(self, dim=none, correction=1, keepdim=false) = var(self, dim, correction, keepdim)
var.dim(self, dim, unbiased=true, keepdim=false) = var(self, dim, keepdim=keepdim)
var_mean.correction(self, dim=none, correction=1, keepdim=false) = var_mean(self, dim, correction,
    keepdim)
view.default(self, size) = reshape(self, size)
view_as_complex.default(self) = complex(select(self, 0, dim=-1), select(self, 1, dim=-1))
view_as_real.default(self) = stack([real(self), imag(self)], dim=-1)
where.ScalarOther(condition, self, other) = where(condition, self, other)
where.ScalarSelf(condition, self, other) = where(condition, self, other)
where.self(condition, self, other) = where(condition, self, other)
xlogy.Tensor(self, other) = xlogy(self, other)
__xor__.Scalar(self, other) = bitwise_xor(self, other)
__xor__.Tensor(self, other) = bitwise_xor(self, other)
zeros.default(size, dtype=none, layout=none, device=none, pin_memory=none) = zeros(size, dtype)
zeros_like.default(self, dtype=none, layout=none, device=none, pin_memory=none,
    memory_format=none) = zeros_like(self, dtype)
"""

PRIMS = """
convert_element_type.default(a, dtype) = cast(a, dtype)
fma.default(a, b, c) = a * b + c
"""

UNSUPPORTED = {
    "convolutions have no kernels": "convolution.default convolution_backward.default",
    "sliding windows have no kernels": "max_pool2d_with_indices.default "
    "max_pool2d_with_indices_backward.default avg_pool2d.default avg_pool2d_backward.default "
    "upsample_nearest2d.vec upsample_bilinear2d.vec grid_sampler_2d.default",
    "the shape of its result depends on the data": "nonzero.default histc.default "
    "masked_select.default",
}
