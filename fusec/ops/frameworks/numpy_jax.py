"""Functions of NumPy and JAX in terms of fusec, in the form of `pytorch.py`.

Only names that PyTorch lacks, or that mean something else there: other names are looked up there.
`jax` has the names of jax.nn and jax.lax; jax.numpy's are NumPy's.
"""

NUMPY_SAME = """
abs all any argmax argmin argsort atan2 ceil copysign cos cosh deg2rad exp exp2 expm1 floor fmax
fmin fmod full full_like gcd hypot imag isclose isfinite isinf isnan isneginf isposinf isreal log
log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul max maximum mean
min minimum nan_to_num nextafter ones ones_like pow prod rad2deg real remainder reshape sign
signbit sin sinh sqrt square stack sum tan tanh tril triu trunc where zeros zeros_like
"""

NUMPY = """
add(x1, x2) -> x1 + x2
array(object) -> {ndim>=0} set(object) | {object:one} full([], object)  # of one number; other data
    is an input
array_split(ary, sections, axis=0) -> chunk(ary, sections, axis)
around(a) = round(a)
astype(x, dtype) = cast(x, dtype)
average(a, axis=none) -> mean(a, axis)
bitwise_count(x) -> x  # no operation counts bits
cbrt(x) -> sign(x) * abs(x) ** 0.3333333333333333
clip(a, a_min=none, a_max=none) = clamp(a, a_min, a_max) | maximum(a, a_min) | minimum(a, a_max)
concatenate(arrays, axis=0) = cat(arrays, axis)
conjugate(x) -> complex(real(x), -imag(x))
degrees(x) = rad2deg(x)
divide(x1, x2) = truediv(x1, x2)
dot(a, b) -> {ndim=1} a @ b | {ndim=2} a @ b
expand_dims(a, axis) = unsqueeze(a, axis)
float_power(x1, x2) -> cast(x1, f64) ** x2
identity(n) = eye(n)
invert(x) = bitwise_not(x)
left_shift(x1, x2) = bitwise_left_shift(x1, x2)
linspace(start, stop, num=50) -> start + cast(arange(num), f32) * ((stop - start) / (num - 1))
mod(x1, x2) = remainder(x1, x2)
modf(x) -> frac(x)  # and trunc(x)
multiply(x1, x2) = mul(x1, x2)
nanmax(a, axis=none) -> max(where(isnan(a), -inf, a), axis)
nanmin(a, axis=none) -> min(where(isnan(a), inf, a), axis)
negative(x) = neg(x)
nanstd(a, axis=none) -> std(a, axis, 0)  # of numbers alone
nanvar(a, axis=none) -> var(a, axis, 0)  # of numbers alone
power(x1, x2) = pow(x1, x2)
ptp(a, axis=none) -> max(a, axis) - min(a, axis)
radians(x) = deg2rad(x)
repeat(a, repeats, axis) -> repeat_interleave(a, repeats, axis)
right_shift(x1, x2) = bitwise_right_shift(x1, x2)
rint(x) = round(x)
round(a, decimals=0) -> round(a) | round(a * 10 ** decimals) / 10 ** decimals
round_(a) = round(a)
split(ary, sections, axis=0) -> chunk(ary, sections, axis)
squeeze(a, axis) -> squeeze(a, [axis])
std(a, axis=none, ddof=0, keepdims=false) -> std(a, axis, ddof, keepdims)
subtract(x1, x2) = sub(x1, x2)
swapaxes(a, axis1, axis2) = transpose(a, axis1, axis2)
take(a, indices, axis=none) -> {axis=none, indices.ndim=1} index_select(flatten(a), indices, 0) |
    {axis=none} reshape(index_select(flatten(a), flatten(indices), 0), shape(indices)) |
    {indices.ndim=1} index_select(a, indices, axis) | unflatten(index_select(a, flatten(indices),
    axis), axis, shape(indices))
take_along_axis(arr, indices, axis) -> take_along_axis(arr, indices, axis)
tile(A, reps) = repeat(A, reps)
transpose(a, axes=none) -> {ndim=1, axes=none} set(a) | {ndim=2, axes=none} permute(a, [1, 0]) |
    {ndim=3, axes=none} permute(a, [2, 1, 0]) | {ndim=4, axes=none} permute(a, [3, 2, 1, 0]) |
    permute(a, axes)
permute_dims(a, axes) = permute(a, axes)
true_divide(x1, x2) = truediv(x1, x2)
var(a, axis=none, ddof=0, keepdims=false) -> var(a, axis, ddof, keepdims)
cumulative_sum(x, axis=none) -> {ndim=1, axis=none} cumsum(x, 0) | cumsum(x, axis)
cumulative_prod(x, axis=none) -> {ndim=1, axis=none} cumprod(x, 0) | cumprod(x, axis)
fabs(x) = abs(x)
tri(N, M=none, k=0) -> tril(ones([N, N]), k) | tril(ones([N, M]), k)
vecdot(x1, x2) -> sum(x1 * x2, dims=[-1])
matrix_transpose(x) -> transpose(x, -2, -1)
cumsum(a, axis=none) -> {axis=none} cumsum(flatten(a), 0) | cumsum(a, axis)
cumprod(a, axis=none) -> {axis=none} cumprod(flatten(a), 0) | cumprod(a, axis)
roll(a, shift, axis=none) -> {axis=none} reshape(roll(flatten(a), [shift], [0]), shape(a)) |
    {axis:one} roll(a, [shift], [axis]) | roll(a, shift, axis)
flip(m, axis=none) -> {ndim=1, axis=none} flip(m, [0]) | {ndim=2, axis=none} flip(m, [0, 1]) |
    {ndim=3, axis=none} flip(m, [0, 1, 2]) | {axis:one} flip(m, [axis]) | flip(m, axis)
sort(a, axis=-1) -> sort(a, axis)  # results: the values, the indices
linalg.norm(x, ord=none, axis=none, keepdims=false) -> {ord=none} norm(x, 2.0, axis, keepdims) |
    {ndim=1} norm(x, ord, axis, keepdims) | {axis>=-9} norm(x, ord, axis, keepdims)  # of vectors
"""

JAX_SAME = """
abs acos acosh asin asinh atan atan2 atanh broadcast_in_dim ceil celu complex cos cosh elu eq erf
erfc exp exp2 expm1 floor ge glu gt imag le leaky_relu lgamma log log1p logsumexp lt mish mul ne
neg nextafter pow real reciprocal relu relu6 rsqrt selu sigmoid sign silu sin sinh softplus sqrt
square sub tan tanh
"""

JAX = """
bitwise_xor(x, y) = bitwise_xor(x, y)
broadcast(operand, sizes) -> expand(operand, [sizes, B, H])
clamp(min, x, max) -> clamp(x, min, max)
collapse(operand, start, stop) -> flatten(operand, start, stop - 1)
concatenate(operands, dimension) = cat(operands, dimension)
convert_element_type(operand, new_dtype) = cast(operand, new_dtype)
cumlogsumexp(operand, axis=0) -> log(cumsum(exp(operand - max(operand, axis, true)), axis)) +
    max(operand, axis, true)
div(x, y) = div(x, y)
dot(lhs, rhs) -> lhs @ rhs
dot_general(lhs, rhs) -> lhs @ rhs  # after permute and reshape; the dims before the last two are
    a batch
batch_matmul(lhs, rhs) -> lhs @ rhs
dynamic_slice(operand, start_indices, slice_sizes) -> slice(operand, start_indices, ends)  # ends:
    starts plus sizes
dynamic_slice_in_dim(operand, start_index, slice_size, axis=0) -> narrow(operand, axis,
    start_index, slice_size)
slice_in_dim(operand, start_index, limit_index, axis=0) -> narrow(operand, axis, start_index,
    limit_index - start_index)
dynamic_index_in_dim(operand, index, axis=0) -> select(operand, index, axis)
index_in_dim(operand, index, axis=0) -> select(operand, index, axis)
dynamic_update_slice(operand, update, start_indices) = update_slice(operand, update, start_indices)
expand_dims(array, dimensions) -> unsqueeze(array, dimensions)
hard_sigmoid(x) = hardsigmoid(x)
hard_silu(x) = hardswish(x)
hard_swish(x) = hardswish(x)
hard_tanh(x) = hardtanh(x)
integer_pow(x, y) = pow(x, y)
iota(dtype, size) -> iota(size, dtype=dtype)
log_sigmoid(x) = logsigmoid(x)
logistic(x) = sigmoid(x)
rem(x, y) = fmod(x, y)
reduce_and(operand, axes) = all(operand, axes)
reduce_or(operand, axes) = any(operand, axes)
reduce_sum(operand, axes) = sum(operand, axes)
reduce_prod(operand, axes) = prod(operand, axes)
reduce_max(operand, axes) = max(operand, axes)
reduce_min(operand, axes) = min(operand, axes)
rev(operand, dimensions) = flip(operand, dimensions)
scaled_matmul(lhs, rhs, lhs_scales, rhs_scales) -> scaled_mm(lhs, rhs, lhs_scales, rhs_scales)
select(pred, on_true, on_false) -> where(pred, on_true, on_false)
select_n(which, a, b) -> where(which, b, a)
shift_left(x, y) = bitwise_left_shift(x, y)
shift_right_arithmetic(x, y) = bitwise_right_shift(x, y)
shift_right_logical(x, y) = logical_right_shift(x, y)
soft_sign(x) = softsign(x)
sparse_plus(x) -> where(x >= 1, x, where(x <= -1, 0.0, (x + 1) ** 2 * 0.25))
squareplus(x, b=4) -> (x + sqrt(x * x + b)) * 0.5
standardize(x, axis=-1, epsilon=1e-5) -> (x - mean(x, [axis], true)) * rsqrt(var(x, [axis], 0,
    true) + epsilon)
stop_gradient(x) = set(x)
swish(x) = silu(x)
top_k(operand, k) = topk(operand, k)
transpose(operand, permutation) -> permute(operand, permutation)
dot_product_attention(query, key, value) -> scaled_dot_product_attention(query, key, value)  #
    with the heads before the rows: transpose(x, 1, 2)
erf_inv(x) = erfinv(x)
segment_sum(data, segment_ids, num_segments) -> index_add(zeros([num_segments]), segment_ids,
    data, 0)
identity(x) = set(x)
gelu(x, approximate=true) = {approximate=true} gelu(x, tanh) | {approximate=false} gelu(x)
one_hot(x, num_classes) = cast(one_hot(x, num_classes), f32)
round(x) -> sign(x) * floor(abs(x) + 0.5)
cumsum(operand, axis=0) = cumsum(operand, axis)
cumprod(operand, axis=0) = cumprod(operand, axis)
cummax(operand, axis=0) = cummax(operand, axis)
cummin(operand, axis=0) = cummin(operand, axis)
softmax(x, axis=-1) = softmax(x, axis)
log_softmax(x, axis=-1) = log_softmax(x, axis)
sort(operand, dimension=-1) -> sort(operand, dimension)  # results: the values, the indices
"""

JAX_UNSUPPORTED = {
    "convolutions and sliding windows have no kernels": """
        conv conv_general_dilated conv_transpose reduce_window
    """,
    "a fusion has no control flow": """
        cond scan while_loop fori_loop switch associative_scan map vmap
    """,
    "calls among ranks come from `mesh` and `shardings` (docs/sharding.md)": """
        psum pmax pmin pmean all_gather all_to_all ppermute psum_scatter axis_index
    """,
    "gradients are not recorded: a fusion contains an explicit graph, forward or backward": """
        grad value_and_grad jacfwd jacrev hessian vjp jvp
    """,
}
"""JAX's unsupported names by reason."""

NVFUSER = """
view(arg, new_shape) = reshape(arg, new_shape)
tensor_sizes(arg) = shape(arg)
torch_gather(arg, index, dim) = gather(arg, index, dim)
embedding(input, weight, padding_idx=none) = embedding_fwd(input, weight, padding_idx)
"""
"""Names of nvFuser's older versions."""
