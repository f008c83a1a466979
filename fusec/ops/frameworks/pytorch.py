"""PyTorch's functions and methods in fusec's words: torch, torch.nn.functional, torch.special.

One line each. `name(parameters) = expression`: fusec takes the name, which means exactly this.
`name(parameters) -> expression | expression`: fusec says what to write; of several expressions the
first that uses all that a call gives. `# ...` is a note; a line that begins with a blank goes on.
Names of SAME are operations of fusec that take PyTorch's arguments as they are. The names are those
of PyTorch 2.11.
"""

SAME = """
abs acos acosh addcdiv all any argmax argmin argsort asin asinh atan atan2 atanh bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cat ceil celu chunk
complex copysign cos cosh cosine_similarity count_nonzero cumprod cumsum deg2rad elu eq erf erfc
erfinv exp exp2 expm1 eye flatten flip floor floor_divide fmax fmin fmod frac full full_like gcd ge
gelu glu group_norm gt hardshrink hardsigmoid hardswish hardtanh huber_loss hypot imag isclose
isfinite isinf isnan isneginf isposinf isreal l1_loss layer_norm le leaky_relu lerp lgamma linear
log log10 log1p log2 log_softmax logaddexp logical_and logical_not logical_or logical_xor logsigmoid
logsumexp lt masked_fill matmul maximum mean minimum mish movedim mse_loss mul nan_to_num nansum
narrow ne neg nextafter norm normalize one_hot ones_like permute pow prelu prod rad2deg rand_like
randn_like reciprocal relu relu6 remainder repeat reshape rms_norm rsqrt
scaled_dot_product_attention selu sigmoid sign signbit silu sin sinh size smooth_l1_loss softmax
softmin softplus softshrink softsign sort split sqrt square stack std sum tan tanh tanhshrink
threshold topk transpose tril triu trunc unbind unflatten unsqueeze var var_mean where xlogy
zeros_like
"""

LINES = """
absolute(input) = abs(input)
add(input, other, alpha=1) -> input + other | input + alpha * other
addbmm(input, batch1, batch2, beta=1, alpha=1) -> input + sum(batch1 @ batch2, dims=[0])
addcmul(input, tensor1, tensor2, value=1) -> addcmul(input, tensor1, tensor2, value)
addmm(input, mat1, mat2, beta=1, alpha=1) -> input + mat1 @ mat2 | input + alpha * (mat1 @ mat2) |
    beta * input + mat1 @ mat2 | beta * input + alpha * (mat1 @ mat2)
addmv(input, mat, vec, beta=1, alpha=1) -> input + mat @ vec | input + alpha * (mat @ vec) | beta
    * input + mat @ vec | beta * input + alpha * (mat @ vec)
addr(input, vec1, vec2, beta=1, alpha=1) -> input + unsqueeze(vec1, 1) * vec2 | beta * input +
    alpha * unsqueeze(vec1, 1) * vec2
adjoint(input) = transpose(input, -2, -1)
amax(input, dim=none, keepdim=false) = max(input, dim, keepdim)
amin(input, dim=none, keepdim=false) = min(input, dim, keepdim)
aminmax(input, dim=none, keepdim=false) -> min(input, dim, keepdim)
arange(start, end=none, step=1, dtype=none) -> arange(start, dtype=dtype) | arange(start, end,
    step, dtype)
arccos(input) = acos(input)
arccosh(input) = acosh(input)
arcsin(input) = asin(input)
arcsinh(input) = asinh(input)
arctan(input) = atan(input)
arctan2(input, other) = atan2(input, other)
arctanh(input) = atanh(input)
baddbmm(input, batch1, batch2, beta=1, alpha=1) -> input + batch1 @ batch2 | input + alpha *
    (batch1 @ batch2) | beta * input + batch1 @ batch2 | beta * input + alpha * (batch1 @ batch2)
batch_norm(input, running_mean=none, running_var=none, weight=none, bias=none, training=false,
    momentum=0.1, eps=1e-5) -> batch_norm(input, weight, bias, running_mean, running_var,
    momentum, eps, training)  # results: the output, means, 1 / deviations
bernoulli(input) -> cast(rand_like(input) < input, f32)
binary_cross_entropy(input, target, weight=none, reduction=mean) -> binary_cross_entropy(input,
    target, weight, reduction=reduction)
binary_cross_entropy_with_logits(input, target, weight=none, reduction=mean, pos_weight=none) ->
    binary_cross_entropy_with_logits(input, target, weight, pos_weight=pos_weight,
    reduction=reduction)
bmm(input, mat2) = matmul(input, mat2)
broadcast_to(input, size) = expand(input, size)
chain_matmul(a, b) -> a @ b
clamp(input, min=none, max=none) -> clamp(input, min, max) | maximum(input, min) | minimum(input,
    max)
clamp_max(input, max) = minimum(input, max)
clamp_min(input, min) = maximum(input, min)
clip(input, min=none, max=none) = clamp(input, min, max) | maximum(input, min) | minimum(input, max)
clone(input) = set(input)
concat(tensors, dim=0) = cat(tensors, dim)
concatenate(tensors, dim=0) = cat(tensors, dim)
conj(input) -> {complex} complex(real(input), -imag(input)) | {ndim>=0} set(input)
conj_physical(input) -> {complex} complex(real(input), -imag(input)) | {ndim>=0} set(input)
constant_pad_nd(input, pad, value=0) = pad(input, pad, value)
cosine_embedding_loss(input1, input2, target, margin=0) -> mean(where(target == 1, 1 -
    cosine_similarity(input1, input2), relu(cosine_similarity(input1, input2) - margin)))
cross_entropy(input, target, weight=none, ignore_index=-100, reduction=mean, label_smoothing=0.0) ->
    {weight=none} cross_entropy(input, target, ignore_index, reduction, label_smoothing) | {ndim=2,
    reduction=mean, ignore_index=-100, label_smoothing=0.0} sum(cross_entropy(input, target,
    reduction=none) * index_select(weight, target, 0)) / sum(index_select(weight, target, 0)) |
    {ndim=2, reduction=sum, ignore_index=-100, label_smoothing=0.0} sum(cross_entropy(input, target,
    reduction=none) * index_select(weight, target, 0)) | {ndim=2, reduction=none, ignore_index=-100,
    label_smoothing=0.0} cross_entropy(input, target, reduction=none) * index_select(weight, target,
    0)
cummax(input, dim) -> cummax(input, dim)  # the values alone
cummin(input, dim) -> cummin(input, dim)  # the values alone
dequantize(input) -> cast(input, f32)  # times the scale
detach(input) = set(input)
diff(input, n=1, dim=-1) -> {n=1} narrow(input, dim, 1, size(input, dim) - 1) - narrow(input, dim,
    0, size(input, dim) - 1)
dist(input, other, p=2) -> norm(input - other) | norm(input - other, p)
div(input, other, rounding_mode=none) -> {rounding_mode=none} input / other | {rounding_mode=floor}
    floor_divide(input, other) | {rounding_mode=trunc, integers} div(input, other) |
    {rounding_mode=trunc} trunc(input / other)
divide(input, other, rounding_mode=none) -> {rounding_mode=none} input / other |
    {rounding_mode=floor} floor_divide(input, other) | {rounding_mode=trunc, integers} div(input,
    other) | {rounding_mode=trunc} trunc(input / other)
dot(input, tensor) -> sum(input * tensor)
vdot(input, other) -> sum(input * other)
dropout(input, p=0.5, training=true) -> {training=false, p:any} set(input) | {training=true}
    dropout(input, p)  # results: the output, the mask
native_dropout(input, p, train) -> dropout(input, p)  # results: the output, the mask
embedding(input, weight, padding_idx=none) = embedding_fwd(input, weight, padding_idx)
embedding_bag(input, weight, offsets=none, max_norm=none, norm_type=2, scale_grad_by_freq=false,
    mode=mean) -> {mode=mean, ndim=2} mean(embedding_fwd(input, weight), dims=[1]) | {mode=sum,
    ndim=2} sum(embedding_fwd(input, weight), dims=[1]) | {mode=max, ndim=2}
    max(embedding_fwd(input, weight), dims=[1])
empty(*size, dtype=none) -> zeros(size, dtype)
empty_like(input, dtype=none) -> zeros_like(input, dtype)
entr(input) -> -xlogy(input, input)
erfcx(input) -> exp(input * input) * erfc(input)
expit(input) = sigmoid(input)
fill(input, value) -> full_like(input, value)
fix(input) = trunc(input)
fliplr(input) -> flip(input, [1])
fma(input, other, addend) -> input * other + addend
flipud(input) -> flip(input, [0])
float_power(input, exponent) -> cast(input, f64) ** exponent
frobenius_norm(input, dim=none, keepdim=false) = norm(input, 2.0, dim, keepdim)
gammaln(input) = lgamma(input)
gather(input, dim, index) -> gather(input, index, dim)
gaussian_nll_loss(input, target, var, full=false, eps=1e-6) -> {full=false} mean(0.5 *
    (log(maximum(var, eps)) + (input - target) ** 2 / maximum(var, eps))) | {full=true} mean(0.5 *
    (log(maximum(var, eps)) + (input - target) ** 2 / maximum(var, eps)) + 0.9189385332046727)
ger(input, vec2) -> unsqueeze(input, 1) * vec2
greater(input, other) = gt(input, other)
greater_equal(input, other) = ge(input, other)
grouped_mm(mat_a, mat_b, offs=none, bias=none) -> grouped_mm(mat_a, mat_b, offs, bias=bias)
heaviside(input, values) -> where(input == 0, values, cast(input > 0, f32))
hinge_embedding_loss(input, target, margin=1.0) -> mean(where(target == 1, 0.0, relu(margin -
    input)) + where(target == -1, 0.0, input))
hsplit(input, sections) -> {ndim=1} chunk(input, sections, dim=0) | chunk(input, sections, dim=1)
hstack(tensors) -> {ndim=1} cat(tensors, dim=0) | cat(tensors, dim=1)
dstack(tensors) -> {ndim>=3} cat(tensors, dim=2) | {ndim=2} stack(tensors, dim=2)
vstack(tensors) -> {ndim=1} stack(tensors, dim=0) | cat(tensors, dim=0)
row_stack(tensors) -> {ndim=1} stack(tensors, dim=0) | cat(tensors, dim=0)
column_stack(tensors) -> {ndim=1} stack(tensors, dim=1) | cat(tensors, dim=1)
vsplit(input, sections) -> chunk(input, sections, dim=0)
dsplit(input, sections) -> chunk(input, sections, dim=2)
index_add(input, dim, index, source) -> index_add(input, index, source, dim)
index_copy(input, dim, index, source) -> scatter(input, index, source, dim)  # the index in the
    shape of the source
index_fill(input, dim, index, value) -> {dim=-1} where(any(unsqueeze(index, 1) == arange(size(input,
    -1)), dims=[0]), value, input) | {ndim=1} where(any(unsqueeze(index, 1) == arange(size(input,
    0)), dims=[0]), value, input) | {ndim=2, dim=1} where(any(unsqueeze(index, 1) ==
    arange(size(input, 1)), dims=[0]), value, input) | {ndim=2, dim=0}
    where(unsqueeze(any(unsqueeze(index, 1) == arange(size(input, 0)), dims=[0]), 1), value, input)
    # of a vector, a matrix or the last dim
index_put(input, indices, values, accumulate=false) -> index_put_accumulate(input, index, values)
    # with accumulate and one index; else scatter
index_select(input, dim, index) -> index_select(input, index, dim)
select(input, dim, index) -> select(input, index, dim)
zeros(*size, dtype=none) -> zeros(size, dtype)
zero_(input) -> zeros_like(input)
inner(input, other) -> {other.ndim=1} input @ other | {ndim=1} other @ input | {other.ndim=2} input
    @ transpose(other, -2, -1)  # of vectors and matrices
instance_norm(input, running_mean=none, running_var=none, weight=none, bias=none,
    use_input_stats=true, momentum=0.1, eps=1e-5) -> instance_norm(input, weight, bias,
    running_mean, running_var, use_input_stats, momentum, eps)  # results: the output, means, 1 /
    deviations
kl_div(input, target, reduction=mean, log_target=false) -> {log_target=false} mean(xlogy(target,
    target) - target * input) | {log_target=true} mean(exp(target) * (target - input))
ldexp(input, other) -> input * exp2(other)
less(input, other) = lt(input, other)
less_equal(input, other) = le(input, other)
linspace(start, end, steps, dtype=none) -> start + cast(arange(steps), f32) * ((end - start) /
    (steps - 1))
logspace(start, end, steps, base=10.0) -> base ** (start + cast(arange(steps), f32) * ((end -
    start) / (steps - 1)))
log_ndtr(input) -> log(erfc(-input * 0.7071067811865476) * 0.5)
logaddexp2(input, other) -> log2(exp2(input) + exp2(other))
logcumsumexp(input, dim) -> log(cumsum(exp(input - max(input, dim, true)), dim)) + max(input, dim,
    true)
margin_ranking_loss(input1, input2, target, margin=0) -> mean(relu(margin - target * (input1 -
    input2)))
max(input, dim=none, keepdim=false) -> max(input, dim, keepdim)  # the values alone; argmax(input,
    dim, keepdim) are the indices
min(input, dim=none, keepdim=false) -> min(input, dim, keepdim)  # the values alone; argmin(input,
    dim, keepdim) are the indices
mm(input, mat2) = matmul(input, mat2)
moveaxis(input, source, destination) = movedim(input, source, destination)
msort(input) -> sort(input, dim=0)  # results: the values, the indices
multiply(input, other) = mul(input, other)
mv(input, vec) = matmul(input, vec)
nanmean(input, dim=none, keepdim=false) -> nansum(input, dim, keepdim) / sum(~isnan(input), dim,
    keepdim)
ndtr(input) -> erfc(-input * 0.7071067811865476) * 0.5
ndtri(input) -> erfinv(2 * input - 1) * 1.4142135623730951
negative(input) = neg(input)
nll_loss(input, target, weight=none, ignore_index=-100, reduction=mean) -> {weight=none}
    nll_loss(input, target, ignore_index, reduction) | {ndim=2, reduction=mean, ignore_index=-100}
    sum(nll_loss(input, target, reduction=none) * index_select(weight, target, 0)) /
    sum(index_select(weight, target, 0)) | {ndim=2, reduction=sum, ignore_index=-100}
    sum(nll_loss(input, target, reduction=none) * index_select(weight, target, 0)) | {ndim=2,
    reduction=none, ignore_index=-100} nll_loss(input, target, reduction=none) *
    index_select(weight, target, 0)
vector_norm(x, ord=2, dim=none, keepdim=false) -> norm(x, ord, dim, keepdim)
norm(input, p=2, dim=none, keepdim=false) -> norm(input, p, dim, keepdim)
native_norm(input, p=2) -> norm(input, p)
not_equal(input, other) = ne(input, other)
numel(input) -> size(input, 0)  # times the other extents
ones(*size, dtype=none) -> ones(size, dtype)
outer(input, vec2) -> unsqueeze(input, 1) * vec2
pad(input, pad, mode=constant, value=0) -> pad(input, pad, value)
pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=false) -> norm(x1 - x2 + eps, p, [-1], keepdim)
pixel_shuffle(input, upscale_factor) -> reshape(permute(reshape(input, [size(input, 0), size(input,
    1) // (upscale_factor * upscale_factor), upscale_factor, upscale_factor, size(input, 2),
    size(input, 3)]), [0, 1, 4, 2, 5, 3]), [size(input, 0), size(input, 1) // (upscale_factor *
    upscale_factor), size(input, 2) * upscale_factor, size(input, 3) * upscale_factor])
pixel_unshuffle(input, downscale_factor) -> reshape(permute(reshape(input, [size(input, 0),
    size(input, 1), size(input, 2) // downscale_factor, downscale_factor, size(input, 3) //
    downscale_factor, downscale_factor]), [0, 1, 3, 5, 2, 4]), [size(input, 0), size(input, 1) *
    (downscale_factor * downscale_factor), size(input, 2) // downscale_factor, size(input, 3) //
    downscale_factor])
channel_shuffle(input, groups) -> reshape(transpose(reshape(input, [size(input, 0), groups,
    size(input, 1) // groups, size(input, 2), size(input, 3)]), 1, 2), [size(input, 0), size(input,
    1), size(input, 2), size(input, 3)])
native_channel_shuffle(input, groups) -> reshape(transpose(reshape(input, [size(input, 0), groups,
    size(input, 1) // groups, size(input, 2), size(input, 3)]), 1, 2), [size(input, 0), size(input,
    1), size(input, 2), size(input, 3)])
poisson_nll_loss(input, target) -> mean(exp(input) - target * input)
polar(abs, angle) -> complex(abs * cos(angle), abs * sin(angle))
positive(input) = set(input)
quantize_per_tensor(input, scale, zero_point, dtype) -> {dtype=qint8} cast(clamp(round(input /
    scale) + zero_point, -128, 127), i8)  # to qint8
quantize_per_channel(input, scales, zero_points, axis, dtype) -> cast(clamp(round(input / scales)
    + zero_points, -128, 127), i8)  # to i8
rand(*size, dtype=none) -> uniform(0, 1, size, dtype=dtype)
randn(*size, dtype=none) -> normal(0, 1, size, dtype=dtype)
normal(mean, std, size) -> normal(mean, std, size)
range(start, end, step=1) -> arange(start, end + 1, step)
ravel(input) = flatten(input)
rot90(input, k=1, dims=none) -> {ndim=2, k=1} flip(transpose(input, 0, 1), [0])  # of a matrix, k=1
round(input, decimals=0) -> round(input) | round(input * 10 ** decimals) / 10 ** decimals
rsub(input, other, alpha=1) -> other - input | other - alpha * input
scalar_tensor(s, dtype=none) -> full([], s, dtype)
scatter(input, dim, index, src) -> scatter(input, index, src, dim)
scatter_add(input, dim, index, src) -> scatter_add(input, index, src, dim)
select_scatter(input, src, dim, index) -> update_slice(input, unsqueeze(src, dim), starts)  #
    starts: index in place `dim`, else 0
slice_scatter(input, src, dim=0, start=0, end=none, step=1) -> update_slice(input, src, starts)  #
    starts: start in place `dim`, else 0; steps of 1
sgn(input) = sign(input)
sinc(input) -> where(input == 0, 1.0, sin(3.141592653589793 * input) / (3.141592653589793 * input))
soft_margin_loss(input, target) -> mean(log1p(exp(-target * input)))
multilabel_soft_margin_loss(input, target) -> binary_cross_entropy_with_logits(input, target)
split_with_sizes(input, split_sizes, dim=0) = split(input, split_sizes, dim)
squeeze(input, dim=none) -> squeeze(input, dim)
std_mean(input, dim=none, correction=1, keepdim=false) -> std(input, dim, correction, keepdim)
sub(input, other, alpha=1) -> input - other | input - alpha * other
subtract(input, other, alpha=1) = sub(input, other) | input - alpha * other
swapaxes(input, axis0, axis1) = transpose(input, axis0, axis1)
swapdims(input, dim0, dim1) = transpose(input, dim0, dim1)
swish(input) = silu(input)
t(input) = {ndim=1} set(input) | permute(input, [1, 0])
take_along_dim(input, indices, dim) = take_along_axis(input, indices, dim)
tensor(data, dtype=none) -> {ndim>=0, dtype=none} set(data) | {ndim>=0} cast(data, dtype) |
    {data:one} full([], data, dtype)  # of one number; other data is an input
as_tensor(data, dtype=none) -> {ndim>=0, dtype=none} set(data) | {ndim>=0} cast(data, dtype) |
    {data:one} full([], data, dtype)  # of one number; other data is an input
asarray(data, dtype=none) -> {ndim>=0, dtype=none} set(data) | {ndim>=0} cast(data, dtype) |
    {data:one} full([], data, dtype)  # of one number; other data is an input
tensor_split(input, sections, dim=0) -> chunk(input, sections, dim)
tile(input, dims) = repeat(input, dims)
trace(input) -> sum(where(unsqueeze(arange(size(input, 0)), 1) == arange(size(input, 0)), input,
    0.0))  # of a square matrix
trapezoid(y, x=none, dx=1, dim=-1) -> sum(narrow(y, dim, 1, size(y, dim) - 1) + narrow(y, dim, 0,
    size(y, dim) - 1), dims=[dim]) * (dx / 2)
trapz(y, x=none, dx=1, dim=-1) -> sum(narrow(y, dim, 1, size(y, dim) - 1) + narrow(y, dim, 0,
    size(y, dim) - 1), dims=[dim]) * (dx / 2)
triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=false) ->
    {swap=false} mean(relu(norm(anchor - positive + eps, p, [-1]) - norm(anchor - negative + eps, p,
    [-1]) + margin)) | {swap=true} mean(relu(norm(anchor - positive + eps, p, [-1]) -
    minimum(norm(anchor - negative + eps, p, [-1]), norm(positive - negative + eps, p, [-1])) +
    margin))
true_divide(input, other) = truediv(input, other)
unsafe_chunk(input, chunks, dim=0) = chunk(input, chunks, dim)
unsafe_split(input, split_size, dim=0) = split(input, split_size, dim)
unsafe_split_with_sizes(input, split_sizes, dim=0) = split(input, split_sizes, dim)
view_as_complex(input) -> complex(select(input, 0, dim=-1), select(input, 1, dim=-1))
view_as_real(input) -> stack([real(input), imag(input)], dim=-1)
xlog1py(input, other) -> where(input == 0, 0.0, input * log1p(other))
angle(input) -> {complex} atan2(imag(input), real(input)) | {ndim>=0} where(input < 0,
    3.141592653589793, zeros_like(input))
atleast_1d(input) -> {ndim=0} reshape(input, [1]) | {ndim>=1} set(input)
atleast_2d(input) -> {ndim=0} reshape(input, [1, 1]) | {ndim=1} unsqueeze(input, 0) | {ndim>=2}
    set(input)
atleast_3d(input) -> {ndim=0} reshape(input, [1, 1, 1]) | {ndim=1} unsqueeze(unsqueeze(input, 0), 2)
    | {ndim=2} unsqueeze(input, 2) | {ndim>=3} set(input)
bilinear(input1, input2, weight, bias=none) -> {ndim=2, bias=none} sum(transpose(unsqueeze(input1,
    0) @ weight, 0, 1) * unsqueeze(input2, 1), [-1]) | {ndim=2} sum(transpose(unsqueeze(input1, 0) @
    weight, 0, 1) * unsqueeze(input2, 1), [-1]) + bias  # of matrices
cdist(x1, x2, p=2.0) -> norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p, [-1])
cross(input, other, dim=-1) -> roll(input, -1, -1) * roll(other, 1, -1) - roll(input, 1, -1) *
    roll(other, -1, -1)
diag(input, diagonal=0) -> {ndim=1} where(unsqueeze(arange(size(input, 0)), 1) == arange(size(input,
    0)), unsqueeze(input, -1), 0.0) | {ndim=2} sum(where(unsqueeze(arange(size(input, 0)), 1) ==
    arange(size(input, 0)), input, 0.0), dims=[1])  # of a vector, or of a square matrix
diagonal(input) -> {ndim=2} sum(where(unsqueeze(arange(size(input, 0)), 1) == arange(size(input,
    0)), input, 0.0), dims=[1])  # of a square matrix
diag_embed(input) -> {ndim>=1} where(unsqueeze(arange(size(input, -1)), 1) == arange(size(input,
    -1)), unsqueeze(input, -1), 0.0)
diagflat(input) -> {ndim=1} where(unsqueeze(arange(size(input, 0)), 1) == arange(size(input, 0)),
    unsqueeze(input, -1), 0.0)  # of a vector
equal(input, other) -> all(input == other)
allclose(input, other, rtol=1e-5, atol=1e-8) -> all(isclose(input, other, rtol, atol))
kron(input, other) -> {ndim=1, other.ndim=1} flatten(unsqueeze(input, 1) * other) | {ndim=2,
    other.ndim=2} reshape(unsqueeze(unsqueeze(input, 1), 3) * unsqueeze(unsqueeze(other, 0), 2),
    [size(input, 0) * size(other, 0), size(input, 1) * size(other, 1)])  # of vectors and matrices
cov(input) -> (input - mean(input, [1], true)) @ transpose(input - mean(input, [1], true), 0, 1) /
    (size(input, 1) - 1)  # of rows of observations
isin(elements, test_elements) -> any(unsqueeze(elements, -1) == test_elements, dims=[-1])
renorm(input, p, dim=0, maxnorm=1.0) -> input * minimum(maxnorm / norm(input, p, [1], true), 1.0)
    # of rows
take(input, index) -> {index.ndim=1} index_select(flatten(input), index, 0) |
    reshape(index_select(flatten(input), flatten(index), 0), shape(index))
tensordot(a, b, dims=2) -> {dims=1} a @ b | {ndim=2, dims=2} sum(a * b) | {ndim=3, dims=2}
    reshape(a, [size(a, 0), size(a, 1) * size(a, 2)]) @ reshape(b, [size(a, 1) * size(a, 2), size(b,
    2)])  # of b with one dim, or none, besides the contracted ones
tril_indices(row, col, offset=0) -> tril(ones([row, col]), offset)  # a mask of them
triu_indices(row, col, offset=0) -> triu(ones([row, col]), offset)  # a mask of them
norm_except_dim(v, pow=2, dim=0) -> norm(v, 2.0, dims, true)  # dims: all but `dim`
native_layer_norm(input, normalized_shape, weight=none, bias=none, eps=1e-5) -> layer_norm(input,
    normalized_shape, weight, bias, eps)  # var_mean(input, dims, correction=0) for its other
    results
native_group_norm(input, weight, bias, N, C, HxW, group, eps) -> group_norm(input, group, weight,
    bias, eps)  # var_mean of the groups for its other results
native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps) ->
    batch_norm(input, weight, bias, running_mean, running_var, momentum, eps, training)
scaled_mm(mat_a, mat_b, scale_a, scale_b, bias=none) -> scaled_mm(mat_a, mat_b, scale_a, scale_b,
    bias=bias)  # results in bf16
scaled_grouped_mm(mat_a, mat_b, scale_a, scale_b, offs) -> grouped_mm(mat_a, mat_b, offs, scale_a,
    scale_b)
gumbel_softmax(logits, tau=1, hard=false, eps=1e-10, dim=-1) -> {hard=false} softmax((logits -
    log(-log(rand_like(logits)))) / tau, dim)  # of soft samples
multi_head_attention_forward(query, key, value) -> scaled_dot_product_attention(q, k, v)  # after
    linear, reshape and permute of each
rrelu(input, lower=0.125, upper=0.3333333333333333, training=false) -> {training=false} where(input
    >= 0, input, input * ((lower + upper) / 2))
cumulative_trapezoid(y, x=none, dx=1, dim=-1) -> cumsum(narrow(y, dim, 1, size(y, dim) - 1) +
    narrow(y, dim, 0, size(y, dim) - 1), dim) * (dx / 2)
sum_to_size(input, size) -> sum(input, dims, keepdim=true)  # dims: those of extent 1 in `size`
lp_pool1d(input, norm_type, kernel_size) -> norm(unflatten(input, -1, [-1, kernel_size]),
    norm_type, [-1])
avg_pool1d(input, kernel_size, stride=none) -> {stride=none} mean(unflatten(input, -1, [-1,
    kernel_size]), [-1]) | {stride=kernel_size} mean(unflatten(input, -1, [-1, kernel_size]), [-1])
    # of windows side by side
max_pool1d(input, kernel_size, stride=none) -> {stride=none} max(unflatten(input, -1, [-1,
    kernel_size]), [-1]) | {stride=kernel_size} max(unflatten(input, -1, [-1, kernel_size]), [-1])
    # of windows side by side
adaptive_avg_pool1d(input, output_size) -> {output_size=1} mean(input, [-1], true) |
    mean(unflatten(input, -1, [output_size, -1]), [-1])  # of an extent that is a multiple
adaptive_avg_pool2d(input, output_size) -> {output_size=1} mean(input, [-2, -1], true)  # of
    output_size 1
adaptive_avg_pool3d(input, output_size) -> {output_size=1} mean(input, [-3, -2, -1], true)  # of
    output_size 1
adaptive_max_pool1d(input, output_size) -> {output_size=1} max(input, [-1], true) |
    max(unflatten(input, -1, [output_size, -1]), [-1])  # of an extent that is a multiple
adaptive_max_pool2d(input, output_size) -> {output_size=1} max(input, [-2, -1], true)  # of
    output_size 1
adaptive_max_pool3d(input, output_size) -> {output_size=1} max(input, [-3, -2, -1], true)  # of
    output_size 1
roll(input, shifts, dims=none) -> {dims=none} reshape(roll(flatten(input), [shifts], [0]),
    shape(input)) | roll(input, shifts, dims)
avg_pool2d(input, kernel_size, stride=none) -> {ndim=4, kernel_size:one, stride=none}
    mean(reshape(input, [size(input, 0), size(input, 1), size(input, 2) // kernel_size, kernel_size,
    size(input, 3) // kernel_size, kernel_size]), [3, 5]) | {ndim=4, kernel_size:one,
    stride=kernel_size} mean(reshape(input, [size(input, 0), size(input, 1), size(input, 2) //
    kernel_size, kernel_size, size(input, 3) // kernel_size, kernel_size]), [3, 5])  # of windows
    side by side
max_pool2d(input, kernel_size, stride=none) -> {ndim=4, kernel_size:one, stride=none}
    max(reshape(input, [size(input, 0), size(input, 1), size(input, 2) // kernel_size, kernel_size,
    size(input, 3) // kernel_size, kernel_size]), [3, 5]) | {ndim=4, kernel_size:one,
    stride=kernel_size} max(reshape(input, [size(input, 0), size(input, 1), size(input, 2) //
    kernel_size, kernel_size, size(input, 3) // kernel_size, kernel_size]), [3, 5])  # of windows
    side by side
interpolate(input, size=none, scale_factor=none, mode=nearest) -> {ndim=3, mode=nearest}
    repeat_interleave(input, scale_factor, 2) | {ndim=4, mode=nearest}
    repeat_interleave(repeat_interleave(input, scale_factor, 2), scale_factor, 3)  # by a whole
    number; other modes have no kernels
bartlett_window(window_length, periodic=true) -> {periodic=true} 1 - abs(cast(arange(window_length),
    f32) * (2 / window_length) - 1) | {periodic=false} 1 - abs(cast(arange(window_length), f32) * (2
    / (window_length - 1)) - 1)
blackman_window(window_length, periodic=true) -> {periodic=true} 0.42 - 0.5 *
    cos(cast(arange(window_length), f32) * (6.283185307179586 / window_length)) + 0.08 *
    cos(cast(arange(window_length), f32) * (12.566370614359172 / window_length)) | {periodic=false}
    0.42 - 0.5 * cos(cast(arange(window_length), f32) * (6.283185307179586 / (window_length - 1))) +
    0.08 * cos(cast(arange(window_length), f32) * (12.566370614359172 / (window_length - 1)))
hamming_window(window_length, periodic=true, alpha=0.54, beta=0.46) -> {periodic=true} alpha - beta
    * cos(cast(arange(window_length), f32) * (6.283185307179586 / window_length)) | {periodic=false}
    alpha - beta * cos(cast(arange(window_length), f32) * (6.283185307179586 / (window_length - 1)))
hann_window(window_length, periodic=true) -> {periodic=true} 0.5 - 0.5 *
    cos(cast(arange(window_length), f32) * (6.283185307179586 / window_length)) | {periodic=false}
    0.5 - 0.5 * cos(cast(arange(window_length), f32) * (6.283185307179586 / (window_length - 1)))
kthvalue(input, k, dim=-1, keepdim=false) -> {keepdim=false} select(sort(input, dim)[0], k - 1, dim)
    | {keepdim=true} narrow(sort(input, dim)[0], dim, k - 1, 1)  # the values alone
median(input, dim=none, keepdim=false) -> {dim=none} select(sort(flatten(input), 0)[0],
    (size(flatten(input), 0) - 1) // 2, 0) | {keepdim=false} select(sort(input, dim)[0],
    (size(input, dim) - 1) // 2, dim) | {keepdim=true} narrow(sort(input, dim)[0], dim, (size(input,
    dim) - 1) // 2, 1)  # the values alone
bucketize(input, boundaries, right=false) -> {right=false} sum(unsqueeze(input, -1) > boundaries,
    [-1]) | {right=true} sum(unsqueeze(input, -1) >= boundaries, [-1])  # by comparing with each
    boundary
searchsorted(sorted_sequence, input, right=false) -> {ndim=1, right=false} sum(unsqueeze(input, -1)
    > sorted_sequence, [-1]) | {ndim=1, right=true} sum(unsqueeze(input, -1) >= sorted_sequence,
    [-1]) | {ndim>=2, right=false} sum(unsqueeze(input, -1) > unsqueeze(sorted_sequence, -2), [-1])
    | {ndim>=2, right=true} sum(unsqueeze(input, -1) >= unsqueeze(sorted_sequence, -2), [-1])  # by
    comparing with each element
bincount(input, weights=none, minlength=none) -> {weights=none} sum(one_hot(input, minlength), [0])
    | index_add(zeros([minlength]), input, weights, 0)  # of values below `minlength`
scatter_reduce(input, dim, index, src, reduce, include_self=true) -> {reduce=sum, include_self=true}
    scatter_add(input, index, src, dim)  # of sums
fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max) ->
    (clamp(round(input / scale) + zero_point, quant_min, quant_max) - zero_point) * scale
multinomial(input, num_samples, replacement=false) -> {num_samples=1, replacement:any}
    argmax(log(input) - log(-log(rand_like(input))), -1, true)  # of one sample
Parameter(data) -> set(data)
logit(input, eps=none) -> {eps=none} logit(input) | logit(clamp(input, eps, 1 - eps))
real(input) -> {complex} real(input) | {ndim>=0} set(input)
repeat_interleave(input, repeats, dim=none) -> {dim=none} repeat_interleave(flatten(input), repeats,
    0) | repeat_interleave(input, repeats, dim)
matrix_power(input, n) -> {n=1} set(input) | {n=2} input @ input | {n=3} input @ input @ input  # of
    small powers
vander(x, N=none, increasing=false) -> {increasing=true} unsqueeze(x, 1) ** arange(N)  # of rising
    powers
linalg.vecdot(x, y, dim=-1) -> sum(x * y, dims=[dim])
linalg.matrix_norm(A, ord=fro) -> {ord=fro} norm(A, 2.0, [-2, -1])
softmax2d(input) -> softmax(input, dim=-3)
linalg.norm(A, ord=none, dim=none, keepdim=false) -> {ord=none} norm(A, 2.0, dim, keepdim) |
    {ndim=1} norm(A, ord, dim, keepdim) | {dim>=-9} norm(A, ord, dim, keepdim)  # of vectors
clip_grad_norm_(parameters, max_norm) -> parameters * minimum(max_norm / (norm(parameters) + 1e-6),
    1.0)  # of one tensor
clip_grad_value_(parameters, clip_value) -> clamp(parameters, -clip_value, clip_value)
cartesian_prod(a, b) -> {ndim=1} reshape(stack([expand(unsqueeze(a, 1), [size(a, 0), size(b, 0)]),
    expand(unsqueeze(b, 0), [size(a, 0), size(b, 0)])], -1), [size(a, 0) * size(b, 0), 2])
meshgrid(a, b, indexing=ij) -> {indexing=ij} expand(unsqueeze(a, 1), [size(a, 0), size(b, 0)])
"""

METHODS = """
bfloat16(self) = cast(self, bf16)
bool(self) = cast(self, bool)
byte(self) = cast(self, u8)
char(self) = cast(self, i8)
short(self) = cast(self, i16)
int(self) = cast(self, i32)
long(self) = cast(self, i64)
half(self) = cast(self, f16)
float(self) = cast(self, f32)
double(self) = cast(self, f64)
cfloat(self) = cast(self, c64)
cdouble(self) = cast(self, c128)
to(self, dtype) = cast(self, dtype)
type(self, dtype) = cast(self, dtype)
type_as(self, other) -> cast(self, bf16)  # with the type of `other`
contiguous(self) = set(self)
requires_grad_(self, mode=true) -> {mode:any} set(self)
item(self) = reshape(self, [])
view(self, *size) = reshape(self, size)
reshape(self, *shape) = reshape(self, shape)
view_as(self, other) -> reshape(self, [B, H])  # with the shape of `other`
reshape_as(self, other) -> reshape(self, [B, H])  # with the shape of `other`
expand(self, *size) = expand(self, size)
where(self, condition, other) -> where(condition, self, other)
expand_as(self, other) -> expand(self, [B, H])  # with the shape of `other`
permute(self, *dims) = permute(self, dims)
flip(self, *dims) = flip(self, dims)
repeat(self, *repeats) = repeat(self, repeats)
tile(self, *dims) = repeat(self, dims)
new_empty(self, *size, dtype=none) -> zeros(size, dtype)
new_full(self, size, fill_value, dtype=none) -> full(size, fill_value, dtype)
new_ones(self, *size, dtype=none) -> ones(size, dtype)
new_zeros(self, *size, dtype=none) -> zeros(size, dtype)
new_tensor(self, data) -> full([], data)
copy_(self, other) -> set(other)  # `- y: {alias: x}` under `outputs:` writes it into the input x
fill_(self, value) -> full_like(self, value)
zero_(self) -> zeros_like(self)
uniform_(self, from_=0, to=1) -> rand_like(self) * (to - from_) + from_
normal_(self, mean=0, std=1) -> randn_like(self) * std + mean
bernoulli_(self, p=0.5) -> cast(rand_like(self) < p, f32)
exponential_(self, lambd=1) -> -log(1 - rand_like(self)) / lambd
T(self) -> permute(self, [1, 0])
mT(self) -> transpose(self, -2, -1)
H(self) -> permute(self, [1, 0])
mH(self) -> transpose(self, -2, -1)
shape(self) -> shape(self)  # a result for each dim; or write the names of dims
ndim(self) -> size(self, 0)  # the number of dims is known: write it
fill_diagonal_(self, fill_value, wrap=false) -> {ndim=2, wrap=false}
    where(unsqueeze(arange(size(self, 0)), 1) == arange(size(self, 1)), fill_value, self)
values(self) -> set(self)  # max and min along a dim return their values alone
indices(self) -> argmax(self)  # of `max` along a dim they are `argmax(x, dim)`
unfold(self, dimension, size, step) -> {step=size, dimension=-1} unflatten(self, -1, [-1, size]) |
    {step=size, dimension>=0} movedim(unflatten(self, dimension, [-1, size]), dimension + 1, -1)  #
    of windows side by side
"""
