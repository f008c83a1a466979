# Generated from the operations by `python -m fusec.pages.stubs`.
"""What operations add to `fd.ops` and to values, for type checkers and editors."""

from collections.abc import Sequence
from typing import Any, TypeAlias, overload

from fusec.ir.dim import Dim
from fusec.parse.dsl.datatype import DataType
from fusec.parse.dsl.handles import Scalar, Tensor, Vector

_bool: TypeAlias = bool
_int: TypeAlias = int
_float: TypeAlias = float
_str: TypeAlias = str
Size: TypeAlias = int | Dim | Scalar
Sizes: TypeAlias = Sequence[Size] | Vector
Dims: TypeAlias = int | Sequence[int] | None
Operand: TypeAlias = Tensor | Scalar | Dim | complex
DTypeLike: TypeAlias = DataType | str | Any

class Functions:
    def square(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x * x."""
    def softplus(self, x: Operand, beta: Operand = 1.0, threshold: Operand = 20.0, *, name: _str | None = None) -> Tensor:
        """Return log(1 + exp(beta * x)) / beta; x where beta * x is above the threshold."""
    def leaky_relu(self, x: Operand, negative_slope: Operand = 0.01, *, name: _str | None = None) -> Tensor:
        """Return x where it is above 0, else `negative_slope` times x."""
    def elu(self, x: Operand, alpha: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Return x where it is above 0, else alpha * (exp(x) - 1)."""
    def celu(self, x: Operand, alpha: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Return x where it is above 0, else alpha * (exp(x / alpha) - 1)."""
    def selu(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return 1.0507 times x where it is above 0, else 1.0507 * 1.6733 * (exp(x) - 1)."""
    def mish(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x * tanh(softplus(x))."""
    def softsign(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x / (1 + |x|)."""
    def tanhshrink(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x - tanh(x)."""
    def logsigmoid(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return log(sigmoid(x)), accurate for large negative x."""
    def relu6(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Clamp x to [0, 6]."""
    def hardtanh(self, x: Operand, min_val: Operand = -1.0, max_val: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Clamp x to two bounds."""
    def hardsigmoid(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x / 6 + 1 / 2, clamped to [0, 1]."""
    def hardswish(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x * hardsigmoid(x)."""
    def hardshrink(self, x: Operand, lambd: Operand = 0.5, *, name: _str | None = None) -> Tensor:
        """Return x, and 0 where |x| <= `lambd`."""
    def softshrink(self, x: Operand, lambd: Operand = 0.5, *, name: _str | None = None) -> Tensor:
        """Return x shrunk towards 0 by `lambd`, and 0 where |x| <= `lambd`."""
    @overload
    def glu(self, x: Operand, dim: _int = -1, *, name: _str | None = None) -> Tensor:
        """Return the first half of x along `dim` times the sigmoid of the second."""
    @overload
    def glu(self, *args: Any, **options: Any) -> Tensor:
        """Return the first half of x along `dim` times the sigmoid of the second."""
    def logaddexp(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return log(exp(a) + exp(b)) without overflow."""
    def logit(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return log(x / (1 - x))."""
    def xlogy(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return a * log(b), and 0 where a is 0 and b is not NaN."""
    def copysign(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the magnitude of a with the sign of b."""
    def hypot(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return sqrt(a * a + b * b); the squares may overflow."""
    def fmin(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the smaller operand; ignores NaN if the other operand is a number."""
    def fmax(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the larger operand; ignores NaN if the other operand is a number."""
    def floor_divide(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return a / b rounded down to an integer; integer division by 0 returns 0."""
    def masked_fill(self, x: Operand, mask: Operand, value: Operand, *, name: _str | None = None) -> Tensor:
        """Return `value` where the mask is true, else x."""
    def logical_xor(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether exactly one operand is nonzero or true."""
    def nan_to_num(self, x: Operand, nan: Operand = 0.0, posinf: Operand | None = None, neginf: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Replace NaN by 0, and infinities by the largest finite values of the type."""
    def addcdiv(self, x: Operand, a: Operand, b: Operand, value: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Return x + value * a / b."""
    def isclose(self, a: Operand, b: Operand, rtol: Operand = 1e-05, atol: Operand = 1e-08, *, name: _str | None = None) -> Tensor:
        """Return whether |a - b| <= atol + rtol * |b|; true for equal infinities, false for NaN."""
    def deg2rad(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return degrees in radians."""
    def rad2deg(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return radians in degrees."""
    @overload
    def uniform(self, minval: Operand, maxval: Operand, shape: Sizes, rng_seed: Operand | None = None, rng_offset: Operand | None = None, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return uniform random numbers in [minval, maxval); default dtype f32.
        
        A value that would round up to maxval becomes the largest value below it.
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    @overload
    def uniform(self, *args: Any, **options: Any) -> Tensor:
        """Return uniform random numbers in [minval, maxval); default dtype f32.
        
        A value that would round up to maxval becomes the largest value below it.
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    @overload
    def normal(self, mean: Operand, std: Operand, shape: Sizes, rng_seed: Operand | None = None, rng_offset: Operand | None = None, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return normally distributed random numbers; default dtype f32.
        
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    @overload
    def normal(self, *args: Any, **options: Any) -> Tensor:
        """Return normally distributed random numbers; default dtype f32.
        
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    def rand_like(self, arg: Operand, rng_seed: Operand | None = None, rng_offset: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return uniform random numbers in [0, 1) with the shape and dtype of `arg`.
        
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    def randn_like(self, arg: Operand, rng_seed: Operand | None = None, rng_offset: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return standard normal random numbers with the shape and dtype of `arg`.
        
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    def dropout(self, arg: Operand, p: Operand, scale: Operand | None = None, rng_seed: Operand | None = None, rng_offset: Operand | None = None, *, name: _str | None = None) -> tuple[Tensor, Tensor]:
        """Return (arg with each element zeroed with probability p, the others scaled; the mask).
        
        The default scale is 1 / (1 - p). Without rng_seed and rng_offset, every run generates new
        numbers from the program's generator.
        """
    def sdpfa_fwd(self, query: Operand, key: Operand, value: Operand, bias: Operand | None = None, mask: Operand | None = None, dropout_p: Operand | None = None, is_causal: Operand | None = None, scale: Operand | None = None, *, name: _str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (softmax(scale * query @ key^T + mask) @ value, the log-sum-exp of the rows).
        
        A bool mask keeps scores where it is true, other masks are added; causal row i attends to keys
        up to i. Two more results are the seed [2] and the offset [] of the dropout, for the backward.
        """
    def scaled_dot_product_attention(self, query: Operand, key: Operand, value: Operand, attn_mask: Operand | None = None, dropout_p: Operand = 0.0, is_causal: Operand = False, scale: Operand | None = None, enable_gqa: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return softmax(scale * query @ key^T + mask) @ value, the first result of `sdpfa_fwd`.
        
        A bool mask keeps scores where it is true, other masks are added; causal row i attends to keys
        up to i. Without a scale it is 1 / sqrt(features). With enable_gqa a head of keys and values
        serves several heads of queries, in order.
        """
    def sdpfa_bwd(self, grad_output: Operand, query: Operand, key: Operand, value: Operand, output: Operand, logsumexp: Operand, dropout_p: Operand | None = None, is_causal: Operand | None = None, philox_seed: Operand | None = None, philox_offset: Operand | None = None, scale: Operand | None = None, mask: Operand | None = None, *, name: _str | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of query, key and value from the operands and results of `sdpfa_fwd`."""
    def real(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the real part of a complex number."""
    def imag(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the imaginary part of a complex number."""
    def complex(self, real: Operand, imag: Operand, *, name: _str | None = None) -> Tensor:
        """Return the complex number with these parts: c128 for f64, else c64."""
    @overload
    def mean(self, arg: Operand, dims: Dims = None, keepdim: _bool = False, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return the mean over `dims`; f32 for integers."""
    @overload
    def mean(self, *args: Any, **options: Any) -> Tensor:
        """Return the mean over `dims`; f32 for integers."""
    @overload
    def softmax(self, x: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return exp(x) divided by its sum along `dim`."""
    @overload
    def softmax(self, *args: Any, **options: Any) -> Tensor:
        """Return exp(x) divided by its sum along `dim`."""
    def prelu(self, x: Operand, weight: Operand, *, name: _str | None = None) -> Tensor:
        """Return x where it is above 0, else x times the weight: one, or one per channel (dim 1)."""
    @overload
    def log_softmax(self, x: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return the logarithm of softmax."""
    @overload
    def log_softmax(self, *args: Any, **options: Any) -> Tensor:
        """Return the logarithm of softmax."""
    @overload
    def layer_norm(self, x: Operand, norm_shape: Sizes, weight: Operand | None = None, bias: Operand | None = None, eps: Operand = 1e-05, *, name: _str | None = None) -> Tensor:
        """Return x with mean 0 and variance 1 over the last dims, times the weight, plus the bias."""
    @overload
    def layer_norm(self, *args: Any, **options: Any) -> Tensor:
        """Return x with mean 0 and variance 1 over the last dims, times the weight, plus the bias."""
    @overload
    def rms_norm(self, x: Operand, norm_shape: Sizes, weight: Operand | None = None, eps: Operand = 1e-05, *, name: _str | None = None) -> Tensor:
        """Return x divided by its root mean square over the last dims, times the weight."""
    @overload
    def rms_norm(self, *args: Any, **options: Any) -> Tensor:
        """Return x divided by its root mean square over the last dims, times the weight."""
    def gelu(self, x: Operand, approximate: _str = 'none', *, name: _str | None = None) -> Tensor:
        """Return x * Phi(x), Phi the standard normal CDF; `tanh` selects the tanh approximation."""
    def matmul(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Multiply matrices; leading dims are a batch and broadcast, 1-dim operands are vectors."""
    def linear(self, x: Operand, weight: Operand, bias: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Multiply x by the transposed weight, and add the bias.
        
        Of weight[*L, N, K] the dims *L come first in the result: [*L, *B, N] for x[*B, K]. Files refuse
        such a weight.
        """
    def cast(self, x: Operand, dtype: DTypeLike, *, name: _str | None = None) -> Tensor:
        """Convert: floats round to nearest even, integers truncate, complex keeps the real part.
        
        Out-of-range values saturate in i32, i64 and u64; NaN becomes 0.
        Smaller types hold the last bits of an i32, u32 those of an i64, u64 of what is negative, too.
        Out-of-range values saturate in f8e4m3 and become infinite in f8e5m2, as in PyTorch.
        """
    def unsqueeze(self, arg: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Insert a dim of extent 1 at `dim` of the result."""
    @overload
    def transpose(self, arg: Operand, dim0: _int, dim1: _int, *, name: _str | None = None) -> Tensor:
        """Transpose two dims."""
    @overload
    def transpose(self, *args: Any, **options: Any) -> Tensor:
        """Transpose two dims."""
    def movedim(self, arg: Operand, source: Sequence[_int], destination: Sequence[_int], *, name: _str | None = None) -> Tensor:
        """Move dims to new positions; the others keep their order."""
    def flatten(self, arg: Operand, start_dim: _int = 0, end_dim: _int = -1, *, name: _str | None = None) -> Tensor:
        """Flatten the dims from `start_dim` to `end_dim` (inclusive) into one."""
    @overload
    def unflatten(self, arg: Operand, dim: _int, sizes: Sizes, *, name: _str | None = None) -> Tensor:
        """Split a dim into several; one of `sizes` may be -1."""
    @overload
    def unflatten(self, *args: Any, **options: Any) -> Tensor:
        """Split a dim into several; one of `sizes` may be -1."""
    def stack(self, tensors: Sequence[Operand], dim: _int = 0, *, name: _str | None = None) -> Tensor:
        """Concatenate tensors of one shape along a new dim."""
    @overload
    def narrow(self, arg: Operand, dim: _int, start: Size, length: Size, *, name: _str | None = None) -> Tensor:
        """Return `length` elements along `dim` from `start`."""
    @overload
    def narrow(self, *args: Any, **options: Any) -> Tensor:
        """Return `length` elements along `dim` from `start`."""
    @overload
    def split(self, arg: Operand, split_size: Sizes, dim: _int = 0, *, name: _str | None = None) -> tuple[Tensor, ...]:
        """Split a tensor along `dim` into parts of one size, or of the sizes listed.
        
        There are as many results as parts; the last of parts of one size may be shorter.
        """
    @overload
    def split(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """Split a tensor along `dim` into parts of one size, or of the sizes listed.
        
        There are as many results as parts; the last of parts of one size may be shorter.
        """
    @overload
    def chunk(self, arg: Operand, chunks: Size, dim: _int = 0, *, name: _str | None = None) -> tuple[Tensor, ...]:
        """Split a tensor along `dim` into `chunks` equal parts, one result each.
        
        A number that is not a multiple of `chunks` gives a shorter last part, and may give fewer parts.
        """
    @overload
    def chunk(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """Split a tensor along `dim` into `chunks` equal parts, one result each.
        
        A number that is not a multiple of `chunks` gives a shorter last part, and may give fewer parts.
        """
    @overload
    def unbind(self, arg: Operand, dim: _int = 0, *, name: _str | None = None) -> tuple[Tensor, ...]:
        """Return all slices along `dim`, without that dim, one result each."""
    @overload
    def unbind(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """Return all slices along `dim`, without that dim, one result each."""
    def roll(self, arg: Operand, shifts: Sequence[_int], dims: Sequence[_int], *, name: _str | None = None) -> Tensor:
        """Shift elements along dims; elements shifted past the end wrap to the front."""
    @overload
    def repeat_interleave(self, arg: Operand, repeats: Size, dim: _int, *, name: _str | None = None) -> Tensor:
        """Repeat each element along `dim` consecutively."""
    @overload
    def repeat_interleave(self, *args: Any, **options: Any) -> Tensor:
        """Repeat each element along `dim` consecutively."""
    @overload
    def index_select(self, arg: Operand, index: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return the slices of `arg` along `dim` selected by a 1-dim, non-negative index.
        
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def index_select(self, *args: Any, **options: Any) -> Tensor:
        """Return the slices of `arg` along `dim` selected by a 1-dim, non-negative index.
        
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def select(self, arg: Operand, index: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return one slice of `arg` along `dim`, without that dim; a literal may be negative.
        
        An index out of bounds is an error; of a 0-dim tensor only in the reference and with
        --check-bounds, else it is undefined.
        """
    @overload
    def select(self, *args: Any, **options: Any) -> Tensor:
        """Return one slice of `arg` along `dim`, without that dim; a literal may be negative.
        
        An index out of bounds is an error; of a 0-dim tensor only in the reference and with
        --check-bounds, else it is undefined.
        """
    @overload
    def gather(self, arg: Operand, index: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return, in the shape of the index, arg[i, index[i, j], ...] with the index in place of `dim`.
        
        In other dims the index may be smaller than `arg`, and then reads its first elements.
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def gather(self, *args: Any, **options: Any) -> Tensor:
        """Return, in the shape of the index, arg[i, index[i, j], ...] with the index in place of `dim`.
        
        In other dims the index may be smaller than `arg`, and then reads its first elements.
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def take_along_axis(self, arg: Operand, index: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return arg[i, index[i, j], ...] with the index in place of `dim`.
        
        Extents of other dims are equal, or 1 and broadcast.
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def take_along_axis(self, *args: Any, **options: Any) -> Tensor:
        """Return arg[i, index[i, j], ...] with the index in place of `dim`.
        
        Extents of other dims are equal, or 1 and broadcast.
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    def embedding_fwd(self, input: Operand, weight: Operand, padding_idx: Operand | None = None, max_norm: Operand | None = None, norm_type: Operand | None = None, scale_grad_by_freq: Operand | None = None, sparse: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the rows of the weight selected by the input; backward-only options are ignored.
        
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    def cross_entropy(self, logits: Operand, target: Operand, ignore_index: _int = -100, reduction: _str = 'mean', label_smoothing: _float = 0.0, *, name: _str | None = None) -> Tensor:
        """Return the cross entropy of softmax(logits) [N, C, ...] and class indices [N, ...].
        
        Samples whose target is `ignore_index` are ignored, also in the mean. A target out
        of bounds is an error in the reference and with --check-bounds, else undefined. A target of
        floats in the shape of the logits holds a probability of each class. Label smoothing gives a
        part of the target's probability to all classes alike.
        """
    def nll_loss(self, log_probs: Operand, target: Operand, ignore_index: _int = -100, reduction: _str = 'mean', *, name: _str | None = None) -> Tensor:
        """Return the negative of log_probs [N, C, ...] at class indices [N, ...].
        
        Samples whose target is `ignore_index` are ignored, also in the mean. A target out
        of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    def mse_loss(self, x: Operand, target: Operand, reduction: _str = 'mean', *, name: _str | None = None) -> Tensor:
        """Return the mean of squared differences, their sum, or (`none`) each of them."""
    def l1_loss(self, x: Operand, target: Operand, reduction: _str = 'mean', *, name: _str | None = None) -> Tensor:
        """Return the mean of absolute differences, their sum, or (`none`) each of them."""
    def smooth_l1_loss(self, x: Operand, target: Operand, reduction: _str = 'mean', beta: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Return 0.5 * d * d / beta of differences d below `beta`, else |d| - 0.5 * beta."""
    def huber_loss(self, x: Operand, target: Operand, reduction: _str = 'mean', delta: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Return 0.5 * d * d of differences d up to `delta`, else delta * (|d| - 0.5 * delta)."""
    def binary_cross_entropy(self, x: Operand, target: Operand, weight: Operand | None = None, reduction: _str = 'mean', *, name: _str | None = None) -> Tensor:
        """Return -(target * log(x) + (1 - target) * log(1 - x)); logarithms are at least -100."""
    def binary_cross_entropy_with_logits(self, x: Operand, target: Operand, weight: Operand | None = None, reduction: _str = 'mean', pos_weight: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the binary cross entropy of sigmoid(x), without overflow."""
    def argmax(self, arg: Operand, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the first index of the maximum over `dims`, as i64; propagates NaN.
        
        Over several dims (default: all) the index is in row-major order.
        It is an error for no elements.
        """
    def argmin(self, arg: Operand, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the first index of the minimum over `dims`, as i64; propagates NaN.
        
        Over several dims (default: all) the index is in row-major order.
        It is an error for no elements.
        """
    @overload
    def full(self, shape: Sizes, fill_value: Operand, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return a tensor filled with one value; default dtype f32 for floats."""
    @overload
    def full(self, *args: Any, **options: Any) -> Tensor:
        """Return a tensor filled with one value; default dtype f32 for floats."""
    def iota(self, length: Size, start: Operand = 0, step: Operand = 1, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return start, start + step, ... as a 1-dim tensor; default dtype i64.
        
        Computed in 64 bits and rounded once.
        """
    @overload
    def size(self, arg: Operand, dim: _int, *, name: _str | None = None) -> Scalar:
        """Return the extent of a dim as an integer scalar."""
    @overload
    def size(self, *args: Any, **options: Any) -> Scalar:
        """Return the extent of a dim as an integer scalar."""
    def shape(self, arg: Operand, *, name: _str | None = None) -> Vector:
        """Return the extents of all dims as integer scalars."""
    @overload
    def zeros(self, shape: Sizes, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return a tensor of zeros; default dtype f32."""
    @overload
    def zeros(self, *args: Any, **options: Any) -> Tensor:
        """Return a tensor of zeros; default dtype f32."""
    @overload
    def ones(self, shape: Sizes, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return a tensor of ones; default dtype f32."""
    @overload
    def ones(self, *args: Any, **options: Any) -> Tensor:
        """Return a tensor of ones; default dtype f32."""
    def full_like(self, x: Operand, fill_value: Operand, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return a tensor filled with one value, with the shape and (default) the dtype of x."""
    def zeros_like(self, x: Operand, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return zeros with the shape and (default) the dtype of x."""
    def ones_like(self, x: Operand, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return ones with the shape and (default) the dtype of x."""
    def arange(self, start: Size, end: Size | None = None, step: Size = 1, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return start, start + step, ... below `end` as i64; start is 0 with one argument.
        
        For values other than sizes use `iota`.
        """
    def eye(self, n: Size, m: Size | None = None, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return an n x m matrix with ones on the diagonal; default dtype f32, default m is n."""
    def one_hot(self, index: Operand, num_classes: Size, *, name: _str | None = None) -> Tensor:
        """Return i64 with a last dim of classes: 1 at the class `index`, else 0."""
    def scaled_mm(self, mat1: Operand, mat2: Operand, scale1: Operand, scale2: Operand, alpha: Operand | None = None, bias: Operand | None = None, beta: Operand | None = None, dtype: DTypeLike = None, *, name: _str | None = None) -> tuple[Tensor, None, None]:
        """Multiply scaled matrices, with scales per tensor, row, column or block; default dtype bf16.
        
        alpha (mat1 scale1) @ (mat2 scale2) + beta bias. A scale has one element, or the dims of its
        matrix with divisors of their extents: [M, 1] scales rows, [M, K // 128] blocks of 128.
        """
    def grouped_mm(self, mat1: Operand, mat2: Operand, offsets: Operand, scale1: Operand | None = None, scale2: Operand | None = None, alpha: Operand | None = None, bias: Operand | None = None, beta: Operand | None = None, dtype: DTypeLike = None, *, name: _str | None = None) -> Any:
        """Multiply matrices by group; offsets hold the end of each group, in increasing order.
        
        [M, K] @ [G, K, N] groups rows, [G, M, K] @ [K, N] columns; [M, K] @ [K, N] groups the summed
        elements, for [G, M, N]. Results past the last group are 0. Scales have one element, or one
        for each row of mat1 and column of mat2; with them the result is bf16 without `dtype`.
        """
    def triu(self, arg: Operand, diagonal: Operand = 0, *, name: _str | None = None) -> Tensor:
        """Return the upper triangle of the last two dims, zero below diagonal `diagonal`."""
    def tril(self, arg: Operand, diagonal: Operand = 0, *, name: _str | None = None) -> Tensor:
        """Return the lower triangle of the last two dims, zero above diagonal `diagonal`."""
    def broadcast(self, arg: Operand, is_broadcast_dim: Sequence[_bool], *, name: _str | None = None) -> Tensor:
        """Insert dims of extent 1 where `is_broadcast_dim` is true."""
    @overload
    def broadcast_in_dim(self, arg: Operand, shape: Sizes, broadcast_dims: Sequence[_int], *, name: _str | None = None) -> Tensor:
        """Map dim i to `broadcast_dims[i]` of `shape`, and broadcast along all other dims."""
    @overload
    def broadcast_in_dim(self, *args: Any, **options: Any) -> Tensor:
        """Map dim i to `broadcast_dims[i]` of `shape`, and broadcast along all other dims."""
    @overload
    def expand(self, arg: Operand, shape: Sizes, *, name: _str | None = None) -> Tensor:
        """Broadcast dims of extent 1 and new leading dims; -1 keeps an extent."""
    @overload
    def expand(self, *args: Any, **options: Any) -> Tensor:
        """Broadcast dims of extent 1 and new leading dims; -1 keeps an extent."""
    def squeeze(self, arg: Operand, dims: Dims, squeeze_expanded: _bool = False, *, name: _str | None = None) -> Tensor:
        """Remove dims of extent 1; with `squeeze_expanded` also expanded dims."""
    def batch_norm(self, arg: Operand, weight: Operand | None = None, bias: Operand | None = None, running_mean: Operand | None = None, running_var: Operand | None = None, momentum: Operand = 0.1, eps: Operand = 1e-05, training: _bool = True, channels_last: _bool = False, *, name: _str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return (arg with mean 0 and variance 1 per channel, the means, 1 / the deviations).
        
        Channels are dim 1, or the last one. With running statistics there are two more results when
        training, their new values: write them into the inputs. Else the running ones are used.
        """
    def instance_norm(self, arg: Operand, weight: Operand | None = None, bias: Operand | None = None, running_mean: Operand | None = None, running_var: Operand | None = None, use_input_stats: _bool = True, momentum: Operand = 0.1, eps: Operand = 1e-05, channels_last: _bool = False, *, name: _str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return (arg with mean 0 and variance 1 per sample and channel, the means, 1 / deviations).
        
        Channels are dim 1, or the last one. With running statistics there are two more results, their
        new values, averaged over the samples; without input statistics the running ones are used.
        """
    def group_norm(self, arg: Operand, num_groups: Size, weight: Operand | None = None, bias: Operand | None = None, eps: Operand = 1e-05, *, name: _str | None = None) -> Tensor:
        """Return arg with mean 0 and variance 1 per sample and group of channels (dim 1).
        
        Times the weight and plus the bias of each channel.
        """
    def add(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Add two operands; integers wrap; logical or for bools."""
    def sub(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Subtract b from a; integers wrap."""
    def mul(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Multiply two operands; integers wrap; logical and for bools."""
    def div(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Divide a by b; integer division truncates towards zero and returns 0 where b is 0.
        
        The lowest integer divided by -1 wraps to itself.
        """
    def truediv(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Divide a by b in floating point, also for integers."""
    def fmod(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the remainder of a / b with the sign of a; 0 for integers where b is 0."""
    def mod(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the remainder of a / b with the sign of a, as C's %; 0 for integers where b is 0."""
    def remainder(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the remainder of a / b with the sign of b, as Python's %; 0 for integers if b is 0.
        
        A remainder of 0 has the sign of a, as in PyTorch.
        """
    def ceilDiv(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Divide non-negative integers, rounding up; 0 where b is 0."""
    def pow(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return a to the power b; integers wrap, their negative powers truncate.
        
        A scalar exponent of 0.5 or -0.5 is `sqrt` or `rsqrt`, also at -0 and -inf.
        """
    def atan2(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the angle of the point (b, a)."""
    def nextafter(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the next float after a towards b; the reference steps in double precision."""
    def minimum(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the smaller operand; propagates NaN."""
    def maximum(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the larger operand; propagates NaN."""
    def gcd(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the non-negative greatest common divisor."""
    def bitwise_and(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the bitwise and."""
    def bitwise_or(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the bitwise or."""
    def bitwise_xor(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the bitwise exclusive or."""
    def bitwise_left_shift(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Shift a left by b bits; 0 for shifts of the type's width or more."""
    def bitwise_right_shift(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Shift a right by b bits (arithmetic shift)."""
    def logical_right_shift(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Shift a right by b bits, filling with zeros (logical shift)."""
    def isfinite(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether x is neither infinite nor NaN."""
    def isinf(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether x is infinite."""
    def isnan(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether x is NaN."""
    def isneginf(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether x is minus infinity."""
    def isposinf(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether x is plus infinity."""
    def isreal(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether the imaginary part of x is 0: always, for real types."""
    def signbit(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether the sign bit is set, also of -0.0; false for NaN, whose sign is undefined."""
    def eq(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a equals b."""
    def ne(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a differs from b."""
    def lt(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a is less than b."""
    def le(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a is less than or equal to b."""
    def gt(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a is greater than b."""
    def ge(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a is greater than or equal to b."""
    def logical_and(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether both operands are nonzero or true."""
    def logical_or(self, a: Operand, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether an operand is nonzero or true."""
    def exp(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return e to the power x."""
    def exp_approx(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return e to the power x, in fewer instructions."""
    def exp2(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return 2 to the power x."""
    def exp2_approx(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return 2 to the power x, in fewer instructions."""
    def expm1(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return e to the power x, minus 1, accurate near 0."""
    def log(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the natural logarithm."""
    def log10(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the logarithm to base 10."""
    def log1p(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return log(1 + x), accurate near 0."""
    def log2(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the logarithm to base 2."""
    def sqrt(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the square root."""
    def rsqrt(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the reciprocal square root, 1 / sqrt(x)."""
    def sigmoid(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the logistic function, 1 / (1 + exp(-x))."""
    def sigmoid_approx(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the logistic function, 1 / (1 + exp(-x)), in fewer instructions."""
    def silu(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x * sigmoid(x)."""
    def silu_approx(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x * sigmoid(x), in fewer instructions."""
    def erf(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the error function."""
    def gelu_approx(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x * Phi(x), Phi the standard normal CDF, in fewer instructions."""
    def erfc(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return 1 - erf(x), accurate for large x."""
    def erfinv(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the inverse of erf."""
    def erfcinv(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the inverse of erfc."""
    def lgamma(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the logarithm of |gamma(x)|."""
    def where(self, condition: Operand, x: Operand, y: Operand, *, name: _str | None = None) -> Tensor:
        """Return x where the condition is true, else y."""
    def lerp(self, start: Operand, end: Operand, weight: Operand, *, name: _str | None = None) -> Tensor:
        """Return start + weight * (end - start)."""
    def clamp(self, x: Operand, min: Operand, max: Operand, *, name: _str | None = None) -> Tensor:
        """Clamp x to two bounds; propagates NaN."""
    def threshold(self, x: Operand, threshold: Operand, value: Operand, *, name: _str | None = None) -> Tensor:
        """Return `value` where x is at most the threshold, else x."""
    def addcmul(self, a: Operand, b: Operand, c: Operand, alpha: Operand, *, name: _str | None = None) -> Tensor:
        """Return a + alpha * b * c."""
    def acos(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the angle in [0, pi] whose cosine is x."""
    def acosh(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the inverse hyperbolic cosine."""
    def asin(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the angle in [-pi/2, pi/2] whose sine is x."""
    def asinh(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the inverse hyperbolic sine."""
    def atan(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the angle in [-pi/2, pi/2] whose tangent is x."""
    def atanh(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the inverse hyperbolic tangent."""
    def cos(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the cosine."""
    def cosh(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the hyperbolic cosine."""
    def sin(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the sine."""
    def sinh(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the hyperbolic sine."""
    def tan(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the tangent."""
    def tanh(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the hyperbolic tangent."""
    def tanh_approx(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the hyperbolic tangent, in fewer instructions."""
    def abs(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the absolute value; the modulus for complex numbers.
        
        The lowest integer wraps to itself.
        """
    def neg(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the negative; integers wrap."""
    def sign(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return -1, 0 or 1; 0 for NaN."""
    def reciprocal(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return 1 / x."""
    def relu(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return max(x, 0); propagates NaN."""
    def ceil(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x rounded up to an integer."""
    def floor(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x rounded down to an integer."""
    def round(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x rounded to the nearest integer, ties to even."""
    def trunc(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x rounded towards zero to an integer."""
    def frac(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return the fractional part of x, with the sign of x."""
    def logical_not(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether x is zero or false."""
    def bitwise_not(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return every bit inverted; of a bool, its negation."""
    def flip(self, arg: Operand, dims: Dims, *, name: _str | None = None) -> Tensor:
        """Reverse the order of elements along `dims`."""
    @overload
    def repeat(self, arg: Operand, repeats: Sizes, *, name: _str | None = None) -> Tensor:
        """Repeat the whole tensor `repeats[i]` times along dim i; more counts than dims add dims."""
    @overload
    def repeat(self, *args: Any, **options: Any) -> Tensor:
        """Repeat the whole tensor `repeats[i]` times along dim i; more counts than dims add dims."""
    def stride_order(self, arg: Operand, stride_order: Sequence[_int], *, name: _str | None = None) -> Tensor:
        """Copy; as an output the copy is laid out so: dim i is the stride_order[i]-th fastest."""
    @overload
    def sum(self, arg: Operand, dims: Dims = None, keepdim: _bool = False, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Sum over `dims` (default: all); integers and bools are summed in i64."""
    @overload
    def sum(self, *args: Any, **options: Any) -> Tensor:
        """Sum over `dims` (default: all); integers and bools are summed in i64."""
    @overload
    def prod(self, arg: Operand, dims: Dims = None, keepdim: _bool = False, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Multiply over `dims` (default: all); integers and bools in i64."""
    @overload
    def prod(self, *args: Any, **options: Any) -> Tensor:
        """Multiply over `dims` (default: all); integers and bools in i64."""
    @overload
    def max(self, arg: Operand, dims: Dims = None, keepdim: _bool = False, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return the maximum over `dims`; propagates NaN. It is an error for no elements."""
    @overload
    def max(self, *args: Any, **options: Any) -> Tensor:
        """Return the maximum over `dims`; propagates NaN. It is an error for no elements."""
    @overload
    def min(self, arg: Operand, dims: Dims = None, keepdim: _bool = False, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return the minimum over `dims`; propagates NaN. It is an error for no elements."""
    @overload
    def min(self, *args: Any, **options: Any) -> Tensor:
        """Return the minimum over `dims`; propagates NaN. It is an error for no elements."""
    def any(self, arg: Operand, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return whether any value over `dims` is nonzero or true."""
    def all(self, arg: Operand, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return whether all values over `dims` are nonzero or true."""
    @overload
    def reshape(self, arg: Operand, new_shape: Sizes, *, name: _str | None = None) -> Tensor:
        """Return the same elements in row-major order in another shape; one extent may be -1."""
    @overload
    def reshape(self, *args: Any, **options: Any) -> Tensor:
        """Return the same elements in row-major order in another shape; one extent may be -1."""
    def permute(self, arg: Operand, dims: Sequence[_int], *, name: _str | None = None) -> Tensor:
        """Reorder dims: dim i of the result is dim `dims[i]` of the operand."""
    def set(self, arg: Operand, *, name: _str | None = None) -> Tensor:
        """Copy the operand."""
    def segment_set(self, arg: Operand, *, name: _str | None = None) -> Tensor:
        """Copy the operand and force a segment boundary between producer and consumers."""
    @overload
    def cumsum(self, arg: Operand, dim: _int, init: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the inclusive prefix sum plus init; integers and bools in i64."""
    @overload
    def cumsum(self, *args: Any, **options: Any) -> Tensor:
        """Return the inclusive prefix sum plus init; integers and bools in i64."""
    @overload
    def cumprod(self, arg: Operand, dim: _int, init: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the inclusive prefix product times init; integers and bools in i64."""
    @overload
    def cumprod(self, *args: Any, **options: Any) -> Tensor:
        """Return the inclusive prefix product times init; integers and bools in i64."""
    @overload
    def cummax(self, arg: Operand, dim: _int, init: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the running maximum, including init; propagates NaN."""
    @overload
    def cummax(self, *args: Any, **options: Any) -> Tensor:
        """Return the running maximum, including init; propagates NaN."""
    @overload
    def cummin(self, arg: Operand, dim: _int, init: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the running minimum, including init; propagates NaN."""
    @overload
    def cummin(self, *args: Any, **options: Any) -> Tensor:
        """Return the running minimum, including init; propagates NaN."""
    @overload
    def scatter(self, arg: Operand, index: Operand, src: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return `arg` with src[i, j] at [i, index[i, j]], the index in place of `dim`.
        
        For colliding indices, the last element along `dim` is written. The source may be a number. An
        index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def scatter(self, *args: Any, **options: Any) -> Tensor:
        """Return `arg` with src[i, j] at [i, index[i, j]], the index in place of `dim`.
        
        For colliding indices, the last element along `dim` is written. The source may be a number. An
        index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def scatter_add(self, arg: Operand, index: Operand, src: Operand, dim: _int, deterministic: _bool = True, *, name: _str | None = None) -> Tensor:
        """Return `arg` with src[i, j] added at [i, index[i, j]], the index in place of `dim`.
        
        Sums are taken in source order and are bitwise reproducible; with
        deterministic=false those of f32 and f64 in arrival order. An index out of bounds is an
        error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def scatter_add(self, *args: Any, **options: Any) -> Tensor:
        """Return `arg` with src[i, j] added at [i, index[i, j]], the index in place of `dim`.
        
        Sums are taken in source order and are bitwise reproducible; with
        deterministic=false those of f32 and f64 in arrival order. An index out of bounds is an
        error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def index_add(self, arg: Operand, index: Operand, src: Operand, dim: _int, deterministic: _bool = True, *, name: _str | None = None) -> Tensor:
        """Return `arg` with slice i of the source added to its slice index[i] along `dim`.
        
        Sums are taken in source order and are bitwise reproducible; with
        deterministic=false those of f32 and f64 in arrival order. An index out of bounds is an
        error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def index_add(self, *args: Any, **options: Any) -> Tensor:
        """Return `arg` with slice i of the source added to its slice index[i] along `dim`.
        
        Sums are taken in source order and are bitwise reproducible; with
        deterministic=false those of f32 and f64 in arrival order. An index out of bounds is an
        error in the reference and with --check-bounds, else undefined.
        """
    def index_put_accumulate(self, arg: Operand, index: Operand, value: Operand, deterministic: _bool = True, *, name: _str | None = None) -> Tensor:
        """Return `arg` with row i of `value` added to its row index[i]; the index is [N] or [N, 1].
        
        As `index_add` along dim 0.
        """
    @overload
    def argsort(self, arg: Operand, dim: _int = -1, descending: _bool = False, stable: _bool = True, *, name: _str | None = None) -> Tensor:
        """Return the indices that sort the elements, as i64; always stable."""
    @overload
    def argsort(self, *args: Any, **options: Any) -> Tensor:
        """Return the indices that sort the elements, as i64; always stable."""
    @overload
    def sort(self, arg: Operand, dim: _int = -1, descending: _bool = False, stable: _bool = True, *, name: _str | None = None) -> tuple[Tensor, Tensor]:
        """Return (the sorted elements, their indices as i64); always stable."""
    @overload
    def sort(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """Return (the sorted elements, their indices as i64); always stable."""
    @overload
    def topk(self, arg: Operand, k: Size, dim: _int = -1, largest: _bool = True, sorted: _bool = True, *, name: _str | None = None) -> tuple[Tensor, Tensor]:
        """Return (the k largest or smallest elements, their indices as i64); always sorted.
        
        Ties take the first elements; NaN compares greater than all numbers.
        """
    @overload
    def topk(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """Return (the k largest or smallest elements, their indices as i64); always sorted.
        
        Ties take the first elements; NaN compares greater than all numbers.
        """
    def var(self, arg: Operand, dims: Dims = None, correction: _int = 1, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the variance over `dims`, divided by the count minus `correction`."""
    def var_mean(self, arg: Operand, dims: Dims = None, correction: _int = 1, keepdim: _bool = False, *, name: _str | None = None) -> tuple[Tensor, Tensor]:
        """Return the variance and the mean over `dims`."""
    def welford(self, arg: Operand, dims: Dims, *, name: _str | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean, the sum of squared deviations and the count over `dims`."""
    def logsumexp(self, x: Operand, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the logarithm of the sum of exp(x) over `dims`, without overflow."""
    def std(self, x: Operand, dims: Dims = None, correction: _int = 1, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the standard deviation over `dims`, the root of `var`."""
    def norm(self, x: Operand, p: _float = 2.0, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the p-norm over `dims`; p=inf is the largest magnitude."""
    @overload
    def normalize(self, x: Operand, p: _float = 2.0, dim: _int = 1, eps: Operand = 1e-12, *, name: _str | None = None) -> Tensor:
        """Return x divided by max(its p-norm along `dim`, `eps`)."""
    @overload
    def normalize(self, *args: Any, **options: Any) -> Tensor:
        """Return x divided by max(its p-norm along `dim`, `eps`)."""
    @overload
    def cosine_similarity(self, a: Operand, b: Operand, dim: _int = 1, eps: Operand = 1e-08, *, name: _str | None = None) -> Tensor:
        """Return the cosine similarity along `dim`; norms are at least `eps`."""
    @overload
    def cosine_similarity(self, *args: Any, **options: Any) -> Tensor:
        """Return the cosine similarity along `dim`; norms are at least `eps`."""
    @overload
    def softmin(self, x: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return softmax(-x)."""
    @overload
    def softmin(self, *args: Any, **options: Any) -> Tensor:
        """Return softmax(-x)."""
    def count_nonzero(self, x: Operand, dims: Dims = None, *, name: _str | None = None) -> Tensor:
        """Return the number of nonzero elements over `dims`, as i64."""
    def nansum(self, x: Operand, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the sum over `dims`, ignoring NaN."""
    def tf32(self, x: Operand, *, name: _str | None = None) -> Tensor:
        """Return x rounded to TF32 (10 mantissa bits, to nearest), for tensor cores.
        
        An f32 GEMM with both operands in TF32 runs on tensor cores, with a relative error of 2^-11 per
        operand.
        """
    @overload
    def slice(self, arg: Operand, start_indices: Sizes, end_indices: Sizes, strides: Sequence[_int] | None = None, manual_normalization: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the elements from start (inclusive) to end (exclusive) with a step, as in Python.
        
        With `manual_normalization` the caller guarantees 0 <= start <= end <= extent.
        """
    @overload
    def slice(self, *args: Any, **options: Any) -> Tensor:
        """Return the elements from start (inclusive) to end (exclusive) with a step, as in Python.
        
        With `manual_normalization` the caller guarantees 0 <= start <= end <= extent.
        """
    @overload
    def pad(self, arg: Operand, pad_widths: Sizes, value: Operand = 0, *, name: _str | None = None) -> Tensor:
        """Pad with `value`: (before, after) pairs, last dim first; negative widths crop.
        
        The attribute of a node, and so this reference, holds a pair for every dim in order.
        """
    @overload
    def pad(self, *args: Any, **options: Any) -> Tensor:
        """Pad with `value`: (before, after) pairs, last dim first; negative widths crop.
        
        The attribute of a node, and so this reference, holds a pair for every dim in order.
        """
    @overload
    def cat(self, tensors: Sequence[Operand], dim: _int = 0, *, name: _str | None = None) -> Tensor:
        """Concatenate tensors along `dim`."""
    @overload
    def cat(self, *args: Any, **options: Any) -> Tensor:
        """Concatenate tensors along `dim`."""
    @overload
    def update_slice(self, arg: Operand, src: Operand, start_indices: Sizes, *, name: _str | None = None) -> Tensor:
        """Return `arg` with a slice replaced by `src`, at non-negative start indices.
        
        The slice must be within `arg`. If the output aliases `arg`, only the slice is written.
        """
    @overload
    def update_slice(self, *args: Any, **options: Any) -> Tensor:
        """Return `arg` with a slice replaced by `src`, at non-negative start indices.
        
        The slice must be within `arg`. If the output aliases `arg`, only the slice is written.
        """
    def absolute(self, *args: Any, **options: Any) -> Tensor:
        """absolute(input): abs(input)"""
    def adjoint(self, *args: Any, **options: Any) -> Tensor:
        """adjoint(input): transpose(input, -2, -1)"""
    def amax(self, *args: Any, **options: Any) -> Tensor:
        """amax(input, dim=none, keepdim=false): max(input, dim, keepdim)"""
    def amin(self, *args: Any, **options: Any) -> Tensor:
        """amin(input, dim=none, keepdim=false): min(input, dim, keepdim)"""
    def arccos(self, *args: Any, **options: Any) -> Tensor:
        """arccos(input): acos(input)"""
    def arccosh(self, *args: Any, **options: Any) -> Tensor:
        """arccosh(input): acosh(input)"""
    def arcsin(self, *args: Any, **options: Any) -> Tensor:
        """arcsin(input): asin(input)"""
    def arcsinh(self, *args: Any, **options: Any) -> Tensor:
        """arcsinh(input): asinh(input)"""
    def arctan(self, *args: Any, **options: Any) -> Tensor:
        """arctan(input): atan(input)"""
    def arctan2(self, *args: Any, **options: Any) -> Tensor:
        """arctan2(input, other): atan2(input, other)"""
    def arctanh(self, *args: Any, **options: Any) -> Tensor:
        """arctanh(input): atanh(input)"""
    def around(self, *args: Any, **options: Any) -> Tensor:
        """around(a): round(a)"""
    def astype(self, *args: Any, **options: Any) -> Tensor:
        """astype(x, dtype): cast(x, dtype)"""
    def bfloat16(self, *args: Any, **options: Any) -> Tensor:
        """x.bfloat16(): cast(self, bf16)"""
    def bmm(self, *args: Any, **options: Any) -> Tensor:
        """bmm(input, mat2): matmul(input, mat2)"""
    def bool(self, *args: Any, **options: Any) -> Tensor:
        """x.bool(): cast(self, bool)"""
    def broadcast_to(self, *args: Any, **options: Any) -> Tensor:
        """broadcast_to(input, size): expand(input, size)"""
    def byte(self, *args: Any, **options: Any) -> Tensor:
        """x.byte(): cast(self, u8)"""
    def cdouble(self, *args: Any, **options: Any) -> Tensor:
        """x.cdouble(): cast(self, c128)"""
    def cfloat(self, *args: Any, **options: Any) -> Tensor:
        """x.cfloat(): cast(self, c64)"""
    def char(self, *args: Any, **options: Any) -> Tensor:
        """x.char(): cast(self, i8)"""
    def clamp_max(self, *args: Any, **options: Any) -> Tensor:
        """clamp_max(input, max): minimum(input, max)"""
    def clamp_min(self, *args: Any, **options: Any) -> Tensor:
        """clamp_min(input, min): maximum(input, min)"""
    def clip(self, *args: Any, **options: Any) -> Any:
        """clip(input, min=none, max=none): clamp(input, min, max) or maximum(input, min) or minimum(input, max)"""
    def clone(self, *args: Any, **options: Any) -> Tensor:
        """clone(input): set(input)"""
    def concat(self, *args: Any, **options: Any) -> Tensor:
        """concat(tensors, dim=0): cat(tensors, dim)"""
    def concatenate(self, *args: Any, **options: Any) -> Tensor:
        """concatenate(tensors, dim=0): cat(tensors, dim)"""
    def constant_pad_nd(self, *args: Any, **options: Any) -> Tensor:
        """constant_pad_nd(input, pad, value=0): pad(input, pad, value)"""
    def contiguous(self, *args: Any, **options: Any) -> Tensor:
        """x.contiguous(): set(self)"""
    def convert_element_type(self, *args: Any, **options: Any) -> Tensor:
        """convert_element_type(operand, new_dtype): cast(operand, new_dtype)"""
    def degrees(self, *args: Any, **options: Any) -> Tensor:
        """degrees(x): rad2deg(x)"""
    def detach(self, *args: Any, **options: Any) -> Tensor:
        """detach(input): set(input)"""
    def double(self, *args: Any, **options: Any) -> Tensor:
        """x.double(): cast(self, f64)"""
    def dynamic_update_slice(self, *args: Any, **options: Any) -> Tensor:
        """dynamic_update_slice(operand, update, start_indices): update_slice(operand, update, start_indices)"""
    def embedding(self, *args: Any, **options: Any) -> Tensor:
        """embedding(input, weight, padding_idx=none): embedding_fwd(input, weight, padding_idx)"""
    def erf_inv(self, *args: Any, **options: Any) -> Tensor:
        """erf_inv(x): erfinv(x)"""
    def expand_dims(self, *args: Any, **options: Any) -> Tensor:
        """expand_dims(a, axis): unsqueeze(a, axis)"""
    def expit(self, *args: Any, **options: Any) -> Tensor:
        """expit(input): sigmoid(input)"""
    def fabs(self, *args: Any, **options: Any) -> Tensor:
        """fabs(x): abs(x)"""
    def fix(self, *args: Any, **options: Any) -> Tensor:
        """fix(input): trunc(input)"""
    def float(self, *args: Any, **options: Any) -> Tensor:
        """x.float(): cast(self, f32)"""
    def frobenius_norm(self, *args: Any, **options: Any) -> Tensor:
        """frobenius_norm(input, dim=none, keepdim=false): norm(input, 2.0, dim, keepdim)"""
    def gammaln(self, *args: Any, **options: Any) -> Tensor:
        """gammaln(input): lgamma(input)"""
    def greater(self, *args: Any, **options: Any) -> Tensor:
        """greater(input, other): gt(input, other)"""
    def greater_equal(self, *args: Any, **options: Any) -> Tensor:
        """greater_equal(input, other): ge(input, other)"""
    def half(self, *args: Any, **options: Any) -> Tensor:
        """x.half(): cast(self, f16)"""
    def hard_sigmoid(self, *args: Any, **options: Any) -> Tensor:
        """hard_sigmoid(x): hardsigmoid(x)"""
    def hard_silu(self, *args: Any, **options: Any) -> Tensor:
        """hard_silu(x): hardswish(x)"""
    def hard_swish(self, *args: Any, **options: Any) -> Tensor:
        """hard_swish(x): hardswish(x)"""
    def hard_tanh(self, *args: Any, **options: Any) -> Tensor:
        """hard_tanh(x): hardtanh(x)"""
    def identity(self, *args: Any, **options: Any) -> Tensor:
        """identity(n): eye(n)"""
    def int(self, *args: Any, **options: Any) -> Tensor:
        """x.int(): cast(self, i32)"""
    def integer_pow(self, *args: Any, **options: Any) -> Tensor:
        """integer_pow(x, y): pow(x, y)"""
    def invert(self, *args: Any, **options: Any) -> Tensor:
        """invert(x): bitwise_not(x)"""
    def item(self, *args: Any, **options: Any) -> Tensor:
        """x.item(): reshape(self, [])"""
    def left_shift(self, *args: Any, **options: Any) -> Tensor:
        """left_shift(x1, x2): bitwise_left_shift(x1, x2)"""
    def less(self, *args: Any, **options: Any) -> Tensor:
        """less(input, other): lt(input, other)"""
    def less_equal(self, *args: Any, **options: Any) -> Tensor:
        """less_equal(input, other): le(input, other)"""
    def log_sigmoid(self, *args: Any, **options: Any) -> Tensor:
        """log_sigmoid(x): logsigmoid(x)"""
    def logistic(self, *args: Any, **options: Any) -> Tensor:
        """logistic(x): sigmoid(x)"""
    def long(self, *args: Any, **options: Any) -> Tensor:
        """x.long(): cast(self, i64)"""
    def mm(self, *args: Any, **options: Any) -> Tensor:
        """mm(input, mat2): matmul(input, mat2)"""
    def moveaxis(self, *args: Any, **options: Any) -> Tensor:
        """moveaxis(input, source, destination): movedim(input, source, destination)"""
    def multiply(self, *args: Any, **options: Any) -> Tensor:
        """multiply(input, other): mul(input, other)"""
    def mv(self, *args: Any, **options: Any) -> Tensor:
        """mv(input, vec): matmul(input, vec)"""
    def negative(self, *args: Any, **options: Any) -> Tensor:
        """negative(input): neg(input)"""
    def not_equal(self, *args: Any, **options: Any) -> Tensor:
        """not_equal(input, other): ne(input, other)"""
    def permute_dims(self, *args: Any, **options: Any) -> Tensor:
        """permute_dims(a, axes): permute(a, axes)"""
    def positive(self, *args: Any, **options: Any) -> Tensor:
        """positive(input): set(input)"""
    def power(self, *args: Any, **options: Any) -> Tensor:
        """power(x1, x2): pow(x1, x2)"""
    def radians(self, *args: Any, **options: Any) -> Tensor:
        """radians(x): deg2rad(x)"""
    def ravel(self, *args: Any, **options: Any) -> Tensor:
        """ravel(input): flatten(input)"""
    def reduce_and(self, *args: Any, **options: Any) -> Tensor:
        """reduce_and(operand, axes): all(operand, axes)"""
    def reduce_max(self, *args: Any, **options: Any) -> Tensor:
        """reduce_max(operand, axes): max(operand, axes)"""
    def reduce_min(self, *args: Any, **options: Any) -> Tensor:
        """reduce_min(operand, axes): min(operand, axes)"""
    def reduce_or(self, *args: Any, **options: Any) -> Tensor:
        """reduce_or(operand, axes): any(operand, axes)"""
    def reduce_prod(self, *args: Any, **options: Any) -> Tensor:
        """reduce_prod(operand, axes): prod(operand, axes)"""
    def reduce_sum(self, *args: Any, **options: Any) -> Tensor:
        """reduce_sum(operand, axes): sum(operand, axes)"""
    def rem(self, *args: Any, **options: Any) -> Tensor:
        """rem(x, y): fmod(x, y)"""
    def rev(self, *args: Any, **options: Any) -> Tensor:
        """rev(operand, dimensions): flip(operand, dimensions)"""
    def right_shift(self, *args: Any, **options: Any) -> Tensor:
        """right_shift(x1, x2): bitwise_right_shift(x1, x2)"""
    def rint(self, *args: Any, **options: Any) -> Tensor:
        """rint(x): round(x)"""
    def sgn(self, *args: Any, **options: Any) -> Tensor:
        """sgn(input): sign(input)"""
    def shift_left(self, *args: Any, **options: Any) -> Tensor:
        """shift_left(x, y): bitwise_left_shift(x, y)"""
    def shift_right_arithmetic(self, *args: Any, **options: Any) -> Tensor:
        """shift_right_arithmetic(x, y): bitwise_right_shift(x, y)"""
    def shift_right_logical(self, *args: Any, **options: Any) -> Tensor:
        """shift_right_logical(x, y): logical_right_shift(x, y)"""
    def short(self, *args: Any, **options: Any) -> Tensor:
        """x.short(): cast(self, i16)"""
    def soft_sign(self, *args: Any, **options: Any) -> Tensor:
        """soft_sign(x): softsign(x)"""
    def split_with_sizes(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """split_with_sizes(input, split_sizes, dim=0): split(input, split_sizes, dim)"""
    def stop_gradient(self, *args: Any, **options: Any) -> Tensor:
        """stop_gradient(x): set(x)"""
    def subtract(self, *args: Any, **options: Any) -> Any:
        """subtract(input, other, alpha=1): sub(input, other) or input - alpha * other"""
    def swapaxes(self, *args: Any, **options: Any) -> Tensor:
        """swapaxes(input, axis0, axis1): transpose(input, axis0, axis1)"""
    def swapdims(self, *args: Any, **options: Any) -> Tensor:
        """swapdims(input, dim0, dim1): transpose(input, dim0, dim1)"""
    def swish(self, *args: Any, **options: Any) -> Tensor:
        """swish(input): silu(input)"""
    def t(self, *args: Any, **options: Any) -> Any:
        """t(input): set(input) or permute(input, [1, 0])"""
    def take_along_dim(self, *args: Any, **options: Any) -> Tensor:
        """take_along_dim(input, indices, dim): take_along_axis(input, indices, dim)"""
    def tensor_sizes(self, *args: Any, **options: Any) -> Vector:
        """tensor_sizes(arg): shape(arg)"""
    def tile(self, *args: Any, **options: Any) -> Tensor:
        """tile(input, dims): repeat(input, dims)"""
    def to(self, *args: Any, **options: Any) -> Tensor:
        """x.to(dtype): cast(self, dtype)"""
    def top_k(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """top_k(operand, k): topk(operand, k)"""
    def torch_gather(self, *args: Any, **options: Any) -> Tensor:
        """torch_gather(arg, index, dim): gather(arg, index, dim)"""
    def true_divide(self, *args: Any, **options: Any) -> Tensor:
        """true_divide(input, other): truediv(input, other)"""
    def type(self, *args: Any, **options: Any) -> Tensor:
        """x.type(dtype): cast(self, dtype)"""
    def unsafe_chunk(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """unsafe_chunk(input, chunks, dim=0): chunk(input, chunks, dim)"""
    def unsafe_split(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """unsafe_split(input, split_size, dim=0): split(input, split_size, dim)"""
    def unsafe_split_with_sizes(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """unsafe_split_with_sizes(input, split_sizes, dim=0): split(input, split_sizes, dim)"""
    def view(self, *args: Any, **options: Any) -> Tensor:
        """x.view(*size): reshape(self, size)"""

class Methods:
    def __add__(self, other: Operand) -> Tensor: ...
    def __radd__(self, other: Operand) -> Tensor: ...
    def __sub__(self, other: Operand) -> Tensor: ...
    def __rsub__(self, other: Operand) -> Tensor: ...
    def __mul__(self, other: Operand) -> Tensor: ...
    def __rmul__(self, other: Operand) -> Tensor: ...
    def __truediv__(self, other: Operand) -> Tensor: ...
    def __rtruediv__(self, other: Operand) -> Tensor: ...
    def __floordiv__(self, other: Operand) -> Tensor: ...
    def __rfloordiv__(self, other: Operand) -> Tensor: ...
    def __mod__(self, other: Operand) -> Tensor: ...
    def __rmod__(self, other: Operand) -> Tensor: ...
    def __pow__(self, other: Operand) -> Tensor: ...
    def __rpow__(self, other: Operand) -> Tensor: ...
    def __matmul__(self, other: Operand) -> Tensor: ...
    def __rmatmul__(self, other: Operand) -> Tensor: ...
    def __and__(self, other: Operand) -> Tensor: ...
    def __rand__(self, other: Operand) -> Tensor: ...
    def __or__(self, other: Operand) -> Tensor: ...
    def __ror__(self, other: Operand) -> Tensor: ...
    def __xor__(self, other: Operand) -> Tensor: ...
    def __rxor__(self, other: Operand) -> Tensor: ...
    def __lshift__(self, other: Operand) -> Tensor: ...
    def __rlshift__(self, other: Operand) -> Tensor: ...
    def __rshift__(self, other: Operand) -> Tensor: ...
    def __rrshift__(self, other: Operand) -> Tensor: ...
    def __lt__(self, other: Operand) -> Tensor: ...
    def __le__(self, other: Operand) -> Tensor: ...
    def __gt__(self, other: Operand) -> Tensor: ...
    def __ge__(self, other: Operand) -> Tensor: ...
    def __neg__(self) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __abs__(self) -> Tensor: ...
    def square(self, *, name: _str | None = None) -> Tensor:
        """Return x * x."""
    def softplus(self, beta: Operand = 1.0, threshold: Operand = 20.0, *, name: _str | None = None) -> Tensor:
        """Return log(1 + exp(beta * x)) / beta; x where beta * x is above the threshold."""
    def leaky_relu(self, negative_slope: Operand = 0.01, *, name: _str | None = None) -> Tensor:
        """Return x where it is above 0, else `negative_slope` times x."""
    def elu(self, alpha: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Return x where it is above 0, else alpha * (exp(x) - 1)."""
    def celu(self, alpha: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Return x where it is above 0, else alpha * (exp(x / alpha) - 1)."""
    def selu(self, *, name: _str | None = None) -> Tensor:
        """Return 1.0507 times x where it is above 0, else 1.0507 * 1.6733 * (exp(x) - 1)."""
    def mish(self, *, name: _str | None = None) -> Tensor:
        """Return x * tanh(softplus(x))."""
    def softsign(self, *, name: _str | None = None) -> Tensor:
        """Return x / (1 + |x|)."""
    def tanhshrink(self, *, name: _str | None = None) -> Tensor:
        """Return x - tanh(x)."""
    def logsigmoid(self, *, name: _str | None = None) -> Tensor:
        """Return log(sigmoid(x)), accurate for large negative x."""
    def relu6(self, *, name: _str | None = None) -> Tensor:
        """Clamp x to [0, 6]."""
    def hardtanh(self, min_val: Operand = -1.0, max_val: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Clamp x to two bounds."""
    def hardsigmoid(self, *, name: _str | None = None) -> Tensor:
        """Return x / 6 + 1 / 2, clamped to [0, 1]."""
    def hardswish(self, *, name: _str | None = None) -> Tensor:
        """Return x * hardsigmoid(x)."""
    def hardshrink(self, lambd: Operand = 0.5, *, name: _str | None = None) -> Tensor:
        """Return x, and 0 where |x| <= `lambd`."""
    def softshrink(self, lambd: Operand = 0.5, *, name: _str | None = None) -> Tensor:
        """Return x shrunk towards 0 by `lambd`, and 0 where |x| <= `lambd`."""
    def glu(self, dim: _int = -1, *, name: _str | None = None) -> Tensor:
        """Return the first half of x along `dim` times the sigmoid of the second."""
    def logaddexp(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return log(exp(a) + exp(b)) without overflow."""
    def logit(self, *, name: _str | None = None) -> Tensor:
        """Return log(x / (1 - x))."""
    def xlogy(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return a * log(b), and 0 where a is 0 and b is not NaN."""
    def copysign(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the magnitude of a with the sign of b."""
    def hypot(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return sqrt(a * a + b * b); the squares may overflow."""
    def fmin(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the smaller operand; ignores NaN if the other operand is a number."""
    def fmax(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the larger operand; ignores NaN if the other operand is a number."""
    def floor_divide(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return a / b rounded down to an integer; integer division by 0 returns 0."""
    def masked_fill(self, mask: Operand, value: Operand, *, name: _str | None = None) -> Tensor:
        """Return `value` where the mask is true, else x."""
    def logical_xor(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether exactly one operand is nonzero or true."""
    def nan_to_num(self, nan: Operand = 0.0, posinf: Operand | None = None, neginf: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Replace NaN by 0, and infinities by the largest finite values of the type."""
    def addcdiv(self, a: Operand, b: Operand, value: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Return x + value * a / b."""
    def isclose(self, b: Operand, rtol: Operand = 1e-05, atol: Operand = 1e-08, *, name: _str | None = None) -> Tensor:
        """Return whether |a - b| <= atol + rtol * |b|; true for equal infinities, false for NaN."""
    def deg2rad(self, *, name: _str | None = None) -> Tensor:
        """Return degrees in radians."""
    def rad2deg(self, *, name: _str | None = None) -> Tensor:
        """Return radians in degrees."""
    @overload
    def uniform(self, maxval: Operand, shape: Sizes, rng_seed: Operand | None = None, rng_offset: Operand | None = None, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return uniform random numbers in [minval, maxval); default dtype f32.
        
        A value that would round up to maxval becomes the largest value below it.
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    @overload
    def uniform(self, *args: Any, **options: Any) -> Tensor:
        """Return uniform random numbers in [minval, maxval); default dtype f32.
        
        A value that would round up to maxval becomes the largest value below it.
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    @overload
    def normal(self, std: Operand, shape: Sizes, rng_seed: Operand | None = None, rng_offset: Operand | None = None, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return normally distributed random numbers; default dtype f32.
        
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    @overload
    def normal(self, *args: Any, **options: Any) -> Tensor:
        """Return normally distributed random numbers; default dtype f32.
        
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    def rand_like(self, rng_seed: Operand | None = None, rng_offset: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return uniform random numbers in [0, 1) with the shape and dtype of `arg`.
        
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    def randn_like(self, rng_seed: Operand | None = None, rng_offset: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return standard normal random numbers with the shape and dtype of `arg`.
        
        Without rng_seed and rng_offset, every run generates new numbers from the program's generator.
        """
    def dropout(self, p: Operand, scale: Operand | None = None, rng_seed: Operand | None = None, rng_offset: Operand | None = None, *, name: _str | None = None) -> tuple[Tensor, Tensor]:
        """Return (arg with each element zeroed with probability p, the others scaled; the mask).
        
        The default scale is 1 / (1 - p). Without rng_seed and rng_offset, every run generates new
        numbers from the program's generator.
        """
    def sdpfa_fwd(self, key: Operand, value: Operand, bias: Operand | None = None, mask: Operand | None = None, dropout_p: Operand | None = None, is_causal: Operand | None = None, scale: Operand | None = None, *, name: _str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (softmax(scale * query @ key^T + mask) @ value, the log-sum-exp of the rows).
        
        A bool mask keeps scores where it is true, other masks are added; causal row i attends to keys
        up to i. Two more results are the seed [2] and the offset [] of the dropout, for the backward.
        """
    def scaled_dot_product_attention(self, key: Operand, value: Operand, attn_mask: Operand | None = None, dropout_p: Operand = 0.0, is_causal: Operand = False, scale: Operand | None = None, enable_gqa: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return softmax(scale * query @ key^T + mask) @ value, the first result of `sdpfa_fwd`.
        
        A bool mask keeps scores where it is true, other masks are added; causal row i attends to keys
        up to i. Without a scale it is 1 / sqrt(features). With enable_gqa a head of keys and values
        serves several heads of queries, in order.
        """
    def sdpfa_bwd(self, query: Operand, key: Operand, value: Operand, output: Operand, logsumexp: Operand, dropout_p: Operand | None = None, is_causal: Operand | None = None, philox_seed: Operand | None = None, philox_offset: Operand | None = None, scale: Operand | None = None, mask: Operand | None = None, *, name: _str | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of query, key and value from the operands and results of `sdpfa_fwd`."""
    def real(self, *, name: _str | None = None) -> Tensor:
        """Return the real part of a complex number."""
    def imag(self, *, name: _str | None = None) -> Tensor:
        """Return the imaginary part of a complex number."""
    def complex(self, imag: Operand, *, name: _str | None = None) -> Tensor:
        """Return the complex number with these parts: c128 for f64, else c64."""
    @overload
    def mean(self, dims: Dims = None, keepdim: _bool = False, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return the mean over `dims`; f32 for integers."""
    @overload
    def mean(self, *dims: _int, keepdim: _bool = False, dtype: DTypeLike = None, name: _str | None = None) -> Tensor:
        """Return the mean over `dims`; f32 for integers."""
    @overload
    def mean(self, *args: Any, **options: Any) -> Tensor:
        """Return the mean over `dims`; f32 for integers."""
    def softmax(self, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return exp(x) divided by its sum along `dim`."""
    def prelu(self, weight: Operand, *, name: _str | None = None) -> Tensor:
        """Return x where it is above 0, else x times the weight: one, or one per channel (dim 1)."""
    def log_softmax(self, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return the logarithm of softmax."""
    @overload
    def layer_norm(self, norm_shape: Sizes, weight: Operand | None = None, bias: Operand | None = None, eps: Operand = 1e-05, *, name: _str | None = None) -> Tensor:
        """Return x with mean 0 and variance 1 over the last dims, times the weight, plus the bias."""
    @overload
    def layer_norm(self, *norm_shape: Size, weight: Operand | None = None, bias: Operand | None = None, eps: Operand = 1e-05, name: _str | None = None) -> Tensor:
        """Return x with mean 0 and variance 1 over the last dims, times the weight, plus the bias."""
    @overload
    def layer_norm(self, *args: Any, **options: Any) -> Tensor:
        """Return x with mean 0 and variance 1 over the last dims, times the weight, plus the bias."""
    @overload
    def rms_norm(self, norm_shape: Sizes, weight: Operand | None = None, eps: Operand = 1e-05, *, name: _str | None = None) -> Tensor:
        """Return x divided by its root mean square over the last dims, times the weight."""
    @overload
    def rms_norm(self, *norm_shape: Size, weight: Operand | None = None, eps: Operand = 1e-05, name: _str | None = None) -> Tensor:
        """Return x divided by its root mean square over the last dims, times the weight."""
    @overload
    def rms_norm(self, *args: Any, **options: Any) -> Tensor:
        """Return x divided by its root mean square over the last dims, times the weight."""
    def gelu(self, approximate: _str = 'none', *, name: _str | None = None) -> Tensor:
        """Return x * Phi(x), Phi the standard normal CDF; `tanh` selects the tanh approximation."""
    def matmul(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Multiply matrices; leading dims are a batch and broadcast, 1-dim operands are vectors."""
    def linear(self, weight: Operand, bias: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Multiply x by the transposed weight, and add the bias.
        
        Of weight[*L, N, K] the dims *L come first in the result: [*L, *B, N] for x[*B, K]. Files refuse
        such a weight.
        """
    def cast(self, dtype: DTypeLike, *, name: _str | None = None) -> Tensor:
        """Convert: floats round to nearest even, integers truncate, complex keeps the real part.
        
        Out-of-range values saturate in i32, i64 and u64; NaN becomes 0.
        Smaller types hold the last bits of an i32, u32 those of an i64, u64 of what is negative, too.
        Out-of-range values saturate in f8e4m3 and become infinite in f8e5m2, as in PyTorch.
        """
    def unsqueeze(self, dim: _int, *, name: _str | None = None) -> Tensor:
        """Insert a dim of extent 1 at `dim` of the result."""
    def transpose(self, dim0: _int, dim1: _int, *, name: _str | None = None) -> Tensor:
        """Transpose two dims."""
    @overload
    def movedim(self, source: Sequence[_int], destination: Sequence[_int], *, name: _str | None = None) -> Tensor:
        """Move dims to new positions; the others keep their order."""
    @overload
    def movedim(self, *source: Size, destination: Sequence[_int], name: _str | None = None) -> Tensor:
        """Move dims to new positions; the others keep their order."""
    def flatten(self, start_dim: _int = 0, end_dim: _int = -1, *, name: _str | None = None) -> Tensor:
        """Flatten the dims from `start_dim` to `end_dim` (inclusive) into one."""
    @overload
    def unflatten(self, dim: _int, sizes: Sizes, *, name: _str | None = None) -> Tensor:
        """Split a dim into several; one of `sizes` may be -1."""
    @overload
    def unflatten(self, *args: Any, **options: Any) -> Tensor:
        """Split a dim into several; one of `sizes` may be -1."""
    def stack(self, dim: _int = 0, *, name: _str | None = None) -> Tensor:
        """Concatenate tensors of one shape along a new dim."""
    def narrow(self, dim: _int, start: Size, length: Size, *, name: _str | None = None) -> Tensor:
        """Return `length` elements along `dim` from `start`."""
    def chunk(self, chunks: Size, dim: _int = 0, *, name: _str | None = None) -> tuple[Tensor, ...]:
        """Split a tensor along `dim` into `chunks` equal parts, one result each.
        
        A number that is not a multiple of `chunks` gives a shorter last part, and may give fewer parts.
        """
    def unbind(self, dim: _int = 0, *, name: _str | None = None) -> tuple[Tensor, ...]:
        """Return all slices along `dim`, without that dim, one result each."""
    @overload
    def roll(self, shifts: Sequence[_int], dims: Sequence[_int], *, name: _str | None = None) -> Tensor:
        """Shift elements along dims; elements shifted past the end wrap to the front."""
    @overload
    def roll(self, *shifts: Size, dims: Sequence[_int], name: _str | None = None) -> Tensor:
        """Shift elements along dims; elements shifted past the end wrap to the front."""
    def repeat_interleave(self, repeats: Size, dim: _int, *, name: _str | None = None) -> Tensor:
        """Repeat each element along `dim` consecutively."""
    @overload
    def index_select(self, index: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return the slices of `arg` along `dim` selected by a 1-dim, non-negative index.
        
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def index_select(self, *args: Any, **options: Any) -> Tensor:
        """Return the slices of `arg` along `dim` selected by a 1-dim, non-negative index.
        
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def select(self, index: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return one slice of `arg` along `dim`, without that dim; a literal may be negative.
        
        An index out of bounds is an error; of a 0-dim tensor only in the reference and with
        --check-bounds, else it is undefined.
        """
    @overload
    def select(self, *args: Any, **options: Any) -> Tensor:
        """Return one slice of `arg` along `dim`, without that dim; a literal may be negative.
        
        An index out of bounds is an error; of a 0-dim tensor only in the reference and with
        --check-bounds, else it is undefined.
        """
    @overload
    def gather(self, index: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return, in the shape of the index, arg[i, index[i, j], ...] with the index in place of `dim`.
        
        In other dims the index may be smaller than `arg`, and then reads its first elements.
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def gather(self, *args: Any, **options: Any) -> Tensor:
        """Return, in the shape of the index, arg[i, index[i, j], ...] with the index in place of `dim`.
        
        In other dims the index may be smaller than `arg`, and then reads its first elements.
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def take_along_axis(self, index: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return arg[i, index[i, j], ...] with the index in place of `dim`.
        
        Extents of other dims are equal, or 1 and broadcast.
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def take_along_axis(self, *args: Any, **options: Any) -> Tensor:
        """Return arg[i, index[i, j], ...] with the index in place of `dim`.
        
        Extents of other dims are equal, or 1 and broadcast.
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    def embedding_fwd(self, weight: Operand, padding_idx: Operand | None = None, max_norm: Operand | None = None, norm_type: Operand | None = None, scale_grad_by_freq: Operand | None = None, sparse: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the rows of the weight selected by the input; backward-only options are ignored.
        
        An index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    def cross_entropy(self, target: Operand, ignore_index: _int = -100, reduction: _str = 'mean', label_smoothing: _float = 0.0, *, name: _str | None = None) -> Tensor:
        """Return the cross entropy of softmax(logits) [N, C, ...] and class indices [N, ...].
        
        Samples whose target is `ignore_index` are ignored, also in the mean. A target out
        of bounds is an error in the reference and with --check-bounds, else undefined. A target of
        floats in the shape of the logits holds a probability of each class. Label smoothing gives a
        part of the target's probability to all classes alike.
        """
    def nll_loss(self, target: Operand, ignore_index: _int = -100, reduction: _str = 'mean', *, name: _str | None = None) -> Tensor:
        """Return the negative of log_probs [N, C, ...] at class indices [N, ...].
        
        Samples whose target is `ignore_index` are ignored, also in the mean. A target out
        of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    def mse_loss(self, target: Operand, reduction: _str = 'mean', *, name: _str | None = None) -> Tensor:
        """Return the mean of squared differences, their sum, or (`none`) each of them."""
    def l1_loss(self, target: Operand, reduction: _str = 'mean', *, name: _str | None = None) -> Tensor:
        """Return the mean of absolute differences, their sum, or (`none`) each of them."""
    def smooth_l1_loss(self, target: Operand, reduction: _str = 'mean', beta: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Return 0.5 * d * d / beta of differences d below `beta`, else |d| - 0.5 * beta."""
    def huber_loss(self, target: Operand, reduction: _str = 'mean', delta: Operand = 1.0, *, name: _str | None = None) -> Tensor:
        """Return 0.5 * d * d of differences d up to `delta`, else delta * (|d| - 0.5 * delta)."""
    def binary_cross_entropy(self, target: Operand, weight: Operand | None = None, reduction: _str = 'mean', *, name: _str | None = None) -> Tensor:
        """Return -(target * log(x) + (1 - target) * log(1 - x)); logarithms are at least -100."""
    def binary_cross_entropy_with_logits(self, target: Operand, weight: Operand | None = None, reduction: _str = 'mean', pos_weight: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the binary cross entropy of sigmoid(x), without overflow."""
    @overload
    def argmax(self, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the first index of the maximum over `dims`, as i64; propagates NaN.
        
        Over several dims (default: all) the index is in row-major order.
        It is an error for no elements.
        """
    @overload
    def argmax(self, *dims: _int, keepdim: _bool = False, name: _str | None = None) -> Tensor:
        """Return the first index of the maximum over `dims`, as i64; propagates NaN.
        
        Over several dims (default: all) the index is in row-major order.
        It is an error for no elements.
        """
    @overload
    def argmin(self, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the first index of the minimum over `dims`, as i64; propagates NaN.
        
        Over several dims (default: all) the index is in row-major order.
        It is an error for no elements.
        """
    @overload
    def argmin(self, *dims: _int, keepdim: _bool = False, name: _str | None = None) -> Tensor:
        """Return the first index of the minimum over `dims`, as i64; propagates NaN.
        
        Over several dims (default: all) the index is in row-major order.
        It is an error for no elements.
        """
    def full_like(self, fill_value: Operand, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return a tensor filled with one value, with the shape and (default) the dtype of x."""
    def zeros_like(self, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return zeros with the shape and (default) the dtype of x."""
    def ones_like(self, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return ones with the shape and (default) the dtype of x."""
    def one_hot(self, num_classes: Size, *, name: _str | None = None) -> Tensor:
        """Return i64 with a last dim of classes: 1 at the class `index`, else 0."""
    def scaled_mm(self, mat2: Operand, scale1: Operand, scale2: Operand, alpha: Operand | None = None, bias: Operand | None = None, beta: Operand | None = None, dtype: DTypeLike = None, *, name: _str | None = None) -> tuple[Tensor, None, None]:
        """Multiply scaled matrices, with scales per tensor, row, column or block; default dtype bf16.
        
        alpha (mat1 scale1) @ (mat2 scale2) + beta bias. A scale has one element, or the dims of its
        matrix with divisors of their extents: [M, 1] scales rows, [M, K // 128] blocks of 128.
        """
    def grouped_mm(self, mat2: Operand, offsets: Operand, scale1: Operand | None = None, scale2: Operand | None = None, alpha: Operand | None = None, bias: Operand | None = None, beta: Operand | None = None, dtype: DTypeLike = None, *, name: _str | None = None) -> Any:
        """Multiply matrices by group; offsets hold the end of each group, in increasing order.
        
        [M, K] @ [G, K, N] groups rows, [G, M, K] @ [K, N] columns; [M, K] @ [K, N] groups the summed
        elements, for [G, M, N]. Results past the last group are 0. Scales have one element, or one
        for each row of mat1 and column of mat2; with them the result is bf16 without `dtype`.
        """
    def triu(self, diagonal: Operand = 0, *, name: _str | None = None) -> Tensor:
        """Return the upper triangle of the last two dims, zero below diagonal `diagonal`."""
    def tril(self, diagonal: Operand = 0, *, name: _str | None = None) -> Tensor:
        """Return the lower triangle of the last two dims, zero above diagonal `diagonal`."""
    def broadcast(self, is_broadcast_dim: Sequence[_bool], *, name: _str | None = None) -> Tensor:
        """Insert dims of extent 1 where `is_broadcast_dim` is true."""
    @overload
    def broadcast_in_dim(self, shape: Sizes, broadcast_dims: Sequence[_int], *, name: _str | None = None) -> Tensor:
        """Map dim i to `broadcast_dims[i]` of `shape`, and broadcast along all other dims."""
    @overload
    def broadcast_in_dim(self, *shape: Size, broadcast_dims: Sequence[_int], name: _str | None = None) -> Tensor:
        """Map dim i to `broadcast_dims[i]` of `shape`, and broadcast along all other dims."""
    @overload
    def broadcast_in_dim(self, *args: Any, **options: Any) -> Tensor:
        """Map dim i to `broadcast_dims[i]` of `shape`, and broadcast along all other dims."""
    @overload
    def expand(self, shape: Sizes, *, name: _str | None = None) -> Tensor:
        """Broadcast dims of extent 1 and new leading dims; -1 keeps an extent."""
    @overload
    def expand(self, *shape: Size, name: _str | None = None) -> Tensor:
        """Broadcast dims of extent 1 and new leading dims; -1 keeps an extent."""
    @overload
    def expand(self, *args: Any, **options: Any) -> Tensor:
        """Broadcast dims of extent 1 and new leading dims; -1 keeps an extent."""
    @overload
    def squeeze(self, dims: Dims, squeeze_expanded: _bool = False, *, name: _str | None = None) -> Tensor:
        """Remove dims of extent 1; with `squeeze_expanded` also expanded dims."""
    @overload
    def squeeze(self, *dims: _int, squeeze_expanded: _bool = False, name: _str | None = None) -> Tensor:
        """Remove dims of extent 1; with `squeeze_expanded` also expanded dims."""
    def batch_norm(self, weight: Operand | None = None, bias: Operand | None = None, running_mean: Operand | None = None, running_var: Operand | None = None, momentum: Operand = 0.1, eps: Operand = 1e-05, training: _bool = True, channels_last: _bool = False, *, name: _str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return (arg with mean 0 and variance 1 per channel, the means, 1 / the deviations).
        
        Channels are dim 1, or the last one. With running statistics there are two more results when
        training, their new values: write them into the inputs. Else the running ones are used.
        """
    def instance_norm(self, weight: Operand | None = None, bias: Operand | None = None, running_mean: Operand | None = None, running_var: Operand | None = None, use_input_stats: _bool = True, momentum: Operand = 0.1, eps: Operand = 1e-05, channels_last: _bool = False, *, name: _str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return (arg with mean 0 and variance 1 per sample and channel, the means, 1 / deviations).
        
        Channels are dim 1, or the last one. With running statistics there are two more results, their
        new values, averaged over the samples; without input statistics the running ones are used.
        """
    def group_norm(self, num_groups: Size, weight: Operand | None = None, bias: Operand | None = None, eps: Operand = 1e-05, *, name: _str | None = None) -> Tensor:
        """Return arg with mean 0 and variance 1 per sample and group of channels (dim 1).
        
        Times the weight and plus the bias of each channel.
        """
    def add(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Add two operands; integers wrap; logical or for bools."""
    def sub(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Subtract b from a; integers wrap."""
    def mul(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Multiply two operands; integers wrap; logical and for bools."""
    def div(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Divide a by b; integer division truncates towards zero and returns 0 where b is 0.
        
        The lowest integer divided by -1 wraps to itself.
        """
    def truediv(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Divide a by b in floating point, also for integers."""
    def fmod(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the remainder of a / b with the sign of a; 0 for integers where b is 0."""
    def mod(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the remainder of a / b with the sign of a, as C's %; 0 for integers where b is 0."""
    def remainder(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the remainder of a / b with the sign of b, as Python's %; 0 for integers if b is 0.
        
        A remainder of 0 has the sign of a, as in PyTorch.
        """
    def ceilDiv(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Divide non-negative integers, rounding up; 0 where b is 0."""
    def pow(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return a to the power b; integers wrap, their negative powers truncate.
        
        A scalar exponent of 0.5 or -0.5 is `sqrt` or `rsqrt`, also at -0 and -inf.
        """
    def atan2(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the angle of the point (b, a)."""
    def nextafter(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the next float after a towards b; the reference steps in double precision."""
    def minimum(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the smaller operand; propagates NaN."""
    def maximum(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the larger operand; propagates NaN."""
    def gcd(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the non-negative greatest common divisor."""
    def bitwise_and(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the bitwise and."""
    def bitwise_or(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the bitwise or."""
    def bitwise_xor(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return the bitwise exclusive or."""
    def bitwise_left_shift(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Shift a left by b bits; 0 for shifts of the type's width or more."""
    def bitwise_right_shift(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Shift a right by b bits (arithmetic shift)."""
    def logical_right_shift(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Shift a right by b bits, filling with zeros (logical shift)."""
    def isfinite(self, *, name: _str | None = None) -> Tensor:
        """Return whether x is neither infinite nor NaN."""
    def isinf(self, *, name: _str | None = None) -> Tensor:
        """Return whether x is infinite."""
    def isnan(self, *, name: _str | None = None) -> Tensor:
        """Return whether x is NaN."""
    def isneginf(self, *, name: _str | None = None) -> Tensor:
        """Return whether x is minus infinity."""
    def isposinf(self, *, name: _str | None = None) -> Tensor:
        """Return whether x is plus infinity."""
    def isreal(self, *, name: _str | None = None) -> Tensor:
        """Return whether the imaginary part of x is 0: always, for real types."""
    def signbit(self, *, name: _str | None = None) -> Tensor:
        """Return whether the sign bit is set, also of -0.0; false for NaN, whose sign is undefined."""
    def eq(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a equals b."""
    def ne(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a differs from b."""
    def lt(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a is less than b."""
    def le(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a is less than or equal to b."""
    def gt(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a is greater than b."""
    def ge(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether a is greater than or equal to b."""
    def logical_and(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether both operands are nonzero or true."""
    def logical_or(self, b: Operand, *, name: _str | None = None) -> Tensor:
        """Return whether an operand is nonzero or true."""
    def exp(self, *, name: _str | None = None) -> Tensor:
        """Return e to the power x."""
    def exp_approx(self, *, name: _str | None = None) -> Tensor:
        """Return e to the power x, in fewer instructions."""
    def exp2(self, *, name: _str | None = None) -> Tensor:
        """Return 2 to the power x."""
    def exp2_approx(self, *, name: _str | None = None) -> Tensor:
        """Return 2 to the power x, in fewer instructions."""
    def expm1(self, *, name: _str | None = None) -> Tensor:
        """Return e to the power x, minus 1, accurate near 0."""
    def log(self, *, name: _str | None = None) -> Tensor:
        """Return the natural logarithm."""
    def log10(self, *, name: _str | None = None) -> Tensor:
        """Return the logarithm to base 10."""
    def log1p(self, *, name: _str | None = None) -> Tensor:
        """Return log(1 + x), accurate near 0."""
    def log2(self, *, name: _str | None = None) -> Tensor:
        """Return the logarithm to base 2."""
    def sqrt(self, *, name: _str | None = None) -> Tensor:
        """Return the square root."""
    def rsqrt(self, *, name: _str | None = None) -> Tensor:
        """Return the reciprocal square root, 1 / sqrt(x)."""
    def sigmoid(self, *, name: _str | None = None) -> Tensor:
        """Return the logistic function, 1 / (1 + exp(-x))."""
    def sigmoid_approx(self, *, name: _str | None = None) -> Tensor:
        """Return the logistic function, 1 / (1 + exp(-x)), in fewer instructions."""
    def silu(self, *, name: _str | None = None) -> Tensor:
        """Return x * sigmoid(x)."""
    def silu_approx(self, *, name: _str | None = None) -> Tensor:
        """Return x * sigmoid(x), in fewer instructions."""
    def erf(self, *, name: _str | None = None) -> Tensor:
        """Return the error function."""
    def gelu_approx(self, *, name: _str | None = None) -> Tensor:
        """Return x * Phi(x), Phi the standard normal CDF, in fewer instructions."""
    def erfc(self, *, name: _str | None = None) -> Tensor:
        """Return 1 - erf(x), accurate for large x."""
    def erfinv(self, *, name: _str | None = None) -> Tensor:
        """Return the inverse of erf."""
    def erfcinv(self, *, name: _str | None = None) -> Tensor:
        """Return the inverse of erfc."""
    def lgamma(self, *, name: _str | None = None) -> Tensor:
        """Return the logarithm of |gamma(x)|."""
    def where(self, x: Operand, y: Operand, *, name: _str | None = None) -> Tensor:
        """Return x where the condition is true, else y."""
    def lerp(self, end: Operand, weight: Operand, *, name: _str | None = None) -> Tensor:
        """Return start + weight * (end - start)."""
    def clamp(self, min: Operand, max: Operand, *, name: _str | None = None) -> Tensor:
        """Clamp x to two bounds; propagates NaN."""
    def threshold(self, threshold: Operand, value: Operand, *, name: _str | None = None) -> Tensor:
        """Return `value` where x is at most the threshold, else x."""
    def addcmul(self, b: Operand, c: Operand, alpha: Operand, *, name: _str | None = None) -> Tensor:
        """Return a + alpha * b * c."""
    def acos(self, *, name: _str | None = None) -> Tensor:
        """Return the angle in [0, pi] whose cosine is x."""
    def acosh(self, *, name: _str | None = None) -> Tensor:
        """Return the inverse hyperbolic cosine."""
    def asin(self, *, name: _str | None = None) -> Tensor:
        """Return the angle in [-pi/2, pi/2] whose sine is x."""
    def asinh(self, *, name: _str | None = None) -> Tensor:
        """Return the inverse hyperbolic sine."""
    def atan(self, *, name: _str | None = None) -> Tensor:
        """Return the angle in [-pi/2, pi/2] whose tangent is x."""
    def atanh(self, *, name: _str | None = None) -> Tensor:
        """Return the inverse hyperbolic tangent."""
    def cos(self, *, name: _str | None = None) -> Tensor:
        """Return the cosine."""
    def cosh(self, *, name: _str | None = None) -> Tensor:
        """Return the hyperbolic cosine."""
    def sin(self, *, name: _str | None = None) -> Tensor:
        """Return the sine."""
    def sinh(self, *, name: _str | None = None) -> Tensor:
        """Return the hyperbolic sine."""
    def tan(self, *, name: _str | None = None) -> Tensor:
        """Return the tangent."""
    def tanh(self, *, name: _str | None = None) -> Tensor:
        """Return the hyperbolic tangent."""
    def tanh_approx(self, *, name: _str | None = None) -> Tensor:
        """Return the hyperbolic tangent, in fewer instructions."""
    def abs(self, *, name: _str | None = None) -> Tensor:
        """Return the absolute value; the modulus for complex numbers.
        
        The lowest integer wraps to itself.
        """
    def neg(self, *, name: _str | None = None) -> Tensor:
        """Return the negative; integers wrap."""
    def sign(self, *, name: _str | None = None) -> Tensor:
        """Return -1, 0 or 1; 0 for NaN."""
    def reciprocal(self, *, name: _str | None = None) -> Tensor:
        """Return 1 / x."""
    def relu(self, *, name: _str | None = None) -> Tensor:
        """Return max(x, 0); propagates NaN."""
    def ceil(self, *, name: _str | None = None) -> Tensor:
        """Return x rounded up to an integer."""
    def floor(self, *, name: _str | None = None) -> Tensor:
        """Return x rounded down to an integer."""
    def round(self, *, name: _str | None = None) -> Tensor:
        """Return x rounded to the nearest integer, ties to even."""
    def trunc(self, *, name: _str | None = None) -> Tensor:
        """Return x rounded towards zero to an integer."""
    def frac(self, *, name: _str | None = None) -> Tensor:
        """Return the fractional part of x, with the sign of x."""
    def logical_not(self, *, name: _str | None = None) -> Tensor:
        """Return whether x is zero or false."""
    def bitwise_not(self, *, name: _str | None = None) -> Tensor:
        """Return every bit inverted; of a bool, its negation."""
    @overload
    def flip(self, dims: Dims, *, name: _str | None = None) -> Tensor:
        """Reverse the order of elements along `dims`."""
    @overload
    def flip(self, *dims: _int, name: _str | None = None) -> Tensor:
        """Reverse the order of elements along `dims`."""
    @overload
    def repeat(self, repeats: Sizes, *, name: _str | None = None) -> Tensor:
        """Repeat the whole tensor `repeats[i]` times along dim i; more counts than dims add dims."""
    @overload
    def repeat(self, *repeats: Size, name: _str | None = None) -> Tensor:
        """Repeat the whole tensor `repeats[i]` times along dim i; more counts than dims add dims."""
    @overload
    def repeat(self, *args: Any, **options: Any) -> Tensor:
        """Repeat the whole tensor `repeats[i]` times along dim i; more counts than dims add dims."""
    @overload
    def stride_order(self, stride_order: Sequence[_int], *, name: _str | None = None) -> Tensor:
        """Copy; as an output the copy is laid out so: dim i is the stride_order[i]-th fastest."""
    @overload
    def stride_order(self, *stride_order: Size, name: _str | None = None) -> Tensor:
        """Copy; as an output the copy is laid out so: dim i is the stride_order[i]-th fastest."""
    @overload
    def sum(self, dims: Dims = None, keepdim: _bool = False, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Sum over `dims` (default: all); integers and bools are summed in i64."""
    @overload
    def sum(self, *dims: _int, keepdim: _bool = False, dtype: DTypeLike = None, name: _str | None = None) -> Tensor:
        """Sum over `dims` (default: all); integers and bools are summed in i64."""
    @overload
    def sum(self, *args: Any, **options: Any) -> Tensor:
        """Sum over `dims` (default: all); integers and bools are summed in i64."""
    @overload
    def prod(self, dims: Dims = None, keepdim: _bool = False, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Multiply over `dims` (default: all); integers and bools in i64."""
    @overload
    def prod(self, *dims: _int, keepdim: _bool = False, dtype: DTypeLike = None, name: _str | None = None) -> Tensor:
        """Multiply over `dims` (default: all); integers and bools in i64."""
    @overload
    def prod(self, *args: Any, **options: Any) -> Tensor:
        """Multiply over `dims` (default: all); integers and bools in i64."""
    @overload
    def max(self, dims: Dims = None, keepdim: _bool = False, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return the maximum over `dims`; propagates NaN. It is an error for no elements."""
    @overload
    def max(self, *dims: _int, keepdim: _bool = False, dtype: DTypeLike = None, name: _str | None = None) -> Tensor:
        """Return the maximum over `dims`; propagates NaN. It is an error for no elements."""
    @overload
    def max(self, *args: Any, **options: Any) -> Tensor:
        """Return the maximum over `dims`; propagates NaN. It is an error for no elements."""
    @overload
    def min(self, dims: Dims = None, keepdim: _bool = False, dtype: DTypeLike = None, *, name: _str | None = None) -> Tensor:
        """Return the minimum over `dims`; propagates NaN. It is an error for no elements."""
    @overload
    def min(self, *dims: _int, keepdim: _bool = False, dtype: DTypeLike = None, name: _str | None = None) -> Tensor:
        """Return the minimum over `dims`; propagates NaN. It is an error for no elements."""
    @overload
    def min(self, *args: Any, **options: Any) -> Tensor:
        """Return the minimum over `dims`; propagates NaN. It is an error for no elements."""
    @overload
    def any(self, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return whether any value over `dims` is nonzero or true."""
    @overload
    def any(self, *dims: _int, keepdim: _bool = False, name: _str | None = None) -> Tensor:
        """Return whether any value over `dims` is nonzero or true."""
    @overload
    def all(self, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return whether all values over `dims` are nonzero or true."""
    @overload
    def all(self, *dims: _int, keepdim: _bool = False, name: _str | None = None) -> Tensor:
        """Return whether all values over `dims` are nonzero or true."""
    @overload
    def reshape(self, new_shape: Sizes, *, name: _str | None = None) -> Tensor:
        """Return the same elements in row-major order in another shape; one extent may be -1."""
    @overload
    def reshape(self, *new_shape: Size, name: _str | None = None) -> Tensor:
        """Return the same elements in row-major order in another shape; one extent may be -1."""
    @overload
    def reshape(self, *args: Any, **options: Any) -> Tensor:
        """Return the same elements in row-major order in another shape; one extent may be -1."""
    @overload
    def permute(self, dims: Sequence[_int], *, name: _str | None = None) -> Tensor:
        """Reorder dims: dim i of the result is dim `dims[i]` of the operand."""
    @overload
    def permute(self, *dims: Size, name: _str | None = None) -> Tensor:
        """Reorder dims: dim i of the result is dim `dims[i]` of the operand."""
    def set(self, *, name: _str | None = None) -> Tensor:
        """Copy the operand."""
    def segment_set(self, *, name: _str | None = None) -> Tensor:
        """Copy the operand and force a segment boundary between producer and consumers."""
    def cumsum(self, dim: _int, init: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the inclusive prefix sum plus init; integers and bools in i64."""
    def cumprod(self, dim: _int, init: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the inclusive prefix product times init; integers and bools in i64."""
    def cummax(self, dim: _int, init: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the running maximum, including init; propagates NaN."""
    def cummin(self, dim: _int, init: Operand | None = None, *, name: _str | None = None) -> Tensor:
        """Return the running minimum, including init; propagates NaN."""
    @overload
    def scatter(self, index: Operand, src: Operand, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return `arg` with src[i, j] at [i, index[i, j]], the index in place of `dim`.
        
        For colliding indices, the last element along `dim` is written. The source may be a number. An
        index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def scatter(self, *args: Any, **options: Any) -> Tensor:
        """Return `arg` with src[i, j] at [i, index[i, j]], the index in place of `dim`.
        
        For colliding indices, the last element along `dim` is written. The source may be a number. An
        index out of bounds is an error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def scatter_add(self, index: Operand, src: Operand, dim: _int, deterministic: _bool = True, *, name: _str | None = None) -> Tensor:
        """Return `arg` with src[i, j] added at [i, index[i, j]], the index in place of `dim`.
        
        Sums are taken in source order and are bitwise reproducible; with
        deterministic=false those of f32 and f64 in arrival order. An index out of bounds is an
        error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def scatter_add(self, *args: Any, **options: Any) -> Tensor:
        """Return `arg` with src[i, j] added at [i, index[i, j]], the index in place of `dim`.
        
        Sums are taken in source order and are bitwise reproducible; with
        deterministic=false those of f32 and f64 in arrival order. An index out of bounds is an
        error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def index_add(self, index: Operand, src: Operand, dim: _int, deterministic: _bool = True, *, name: _str | None = None) -> Tensor:
        """Return `arg` with slice i of the source added to its slice index[i] along `dim`.
        
        Sums are taken in source order and are bitwise reproducible; with
        deterministic=false those of f32 and f64 in arrival order. An index out of bounds is an
        error in the reference and with --check-bounds, else undefined.
        """
    @overload
    def index_add(self, *args: Any, **options: Any) -> Tensor:
        """Return `arg` with slice i of the source added to its slice index[i] along `dim`.
        
        Sums are taken in source order and are bitwise reproducible; with
        deterministic=false those of f32 and f64 in arrival order. An index out of bounds is an
        error in the reference and with --check-bounds, else undefined.
        """
    def index_put_accumulate(self, index: Operand, value: Operand, deterministic: _bool = True, *, name: _str | None = None) -> Tensor:
        """Return `arg` with row i of `value` added to its row index[i]; the index is [N] or [N, 1].
        
        As `index_add` along dim 0.
        """
    def argsort(self, dim: _int = -1, descending: _bool = False, stable: _bool = True, *, name: _str | None = None) -> Tensor:
        """Return the indices that sort the elements, as i64; always stable."""
    def sort(self, dim: _int = -1, descending: _bool = False, stable: _bool = True, *, name: _str | None = None) -> tuple[Tensor, Tensor]:
        """Return (the sorted elements, their indices as i64); always stable."""
    def topk(self, k: Size, dim: _int = -1, largest: _bool = True, sorted: _bool = True, *, name: _str | None = None) -> tuple[Tensor, Tensor]:
        """Return (the k largest or smallest elements, their indices as i64); always sorted.
        
        Ties take the first elements; NaN compares greater than all numbers.
        """
    @overload
    def var(self, dims: Dims = None, correction: _int = 1, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the variance over `dims`, divided by the count minus `correction`."""
    @overload
    def var(self, *dims: _int, correction: _int = 1, keepdim: _bool = False, name: _str | None = None) -> Tensor:
        """Return the variance over `dims`, divided by the count minus `correction`."""
    @overload
    def var_mean(self, dims: Dims = None, correction: _int = 1, keepdim: _bool = False, *, name: _str | None = None) -> tuple[Tensor, Tensor]:
        """Return the variance and the mean over `dims`."""
    @overload
    def var_mean(self, *dims: _int, correction: _int = 1, keepdim: _bool = False, name: _str | None = None) -> tuple[Tensor, Tensor]:
        """Return the variance and the mean over `dims`."""
    @overload
    def welford(self, dims: Dims, *, name: _str | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean, the sum of squared deviations and the count over `dims`."""
    @overload
    def welford(self, *dims: _int, name: _str | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean, the sum of squared deviations and the count over `dims`."""
    @overload
    def logsumexp(self, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the logarithm of the sum of exp(x) over `dims`, without overflow."""
    @overload
    def logsumexp(self, *dims: _int, keepdim: _bool = False, name: _str | None = None) -> Tensor:
        """Return the logarithm of the sum of exp(x) over `dims`, without overflow."""
    @overload
    def std(self, dims: Dims = None, correction: _int = 1, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the standard deviation over `dims`, the root of `var`."""
    @overload
    def std(self, *dims: _int, correction: _int = 1, keepdim: _bool = False, name: _str | None = None) -> Tensor:
        """Return the standard deviation over `dims`, the root of `var`."""
    def norm(self, p: _float = 2.0, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the p-norm over `dims`; p=inf is the largest magnitude."""
    def normalize(self, p: _float = 2.0, dim: _int = 1, eps: Operand = 1e-12, *, name: _str | None = None) -> Tensor:
        """Return x divided by max(its p-norm along `dim`, `eps`)."""
    @overload
    def cosine_similarity(self, b: Operand, dim: _int = 1, eps: Operand = 1e-08, *, name: _str | None = None) -> Tensor:
        """Return the cosine similarity along `dim`; norms are at least `eps`."""
    @overload
    def cosine_similarity(self, *args: Any, **options: Any) -> Tensor:
        """Return the cosine similarity along `dim`; norms are at least `eps`."""
    def softmin(self, dim: _int, *, name: _str | None = None) -> Tensor:
        """Return softmax(-x)."""
    @overload
    def count_nonzero(self, dims: Dims = None, *, name: _str | None = None) -> Tensor:
        """Return the number of nonzero elements over `dims`, as i64."""
    @overload
    def count_nonzero(self, *dims: _int, name: _str | None = None) -> Tensor:
        """Return the number of nonzero elements over `dims`, as i64."""
    @overload
    def nansum(self, dims: Dims = None, keepdim: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the sum over `dims`, ignoring NaN."""
    @overload
    def nansum(self, *dims: _int, keepdim: _bool = False, name: _str | None = None) -> Tensor:
        """Return the sum over `dims`, ignoring NaN."""
    def tf32(self, *, name: _str | None = None) -> Tensor:
        """Return x rounded to TF32 (10 mantissa bits, to nearest), for tensor cores.
        
        An f32 GEMM with both operands in TF32 runs on tensor cores, with a relative error of 2^-11 per
        operand.
        """
    @overload
    def slice(self, start_indices: Sizes, end_indices: Sizes, strides: Sequence[_int] | None = None, manual_normalization: _bool = False, *, name: _str | None = None) -> Tensor:
        """Return the elements from start (inclusive) to end (exclusive) with a step, as in Python.
        
        With `manual_normalization` the caller guarantees 0 <= start <= end <= extent.
        """
    @overload
    def slice(self, *start_indices: Size, end_indices: Sizes, strides: Sequence[_int] | None = None, manual_normalization: _bool = False, name: _str | None = None) -> Tensor:
        """Return the elements from start (inclusive) to end (exclusive) with a step, as in Python.
        
        With `manual_normalization` the caller guarantees 0 <= start <= end <= extent.
        """
    @overload
    def slice(self, *args: Any, **options: Any) -> Tensor:
        """Return the elements from start (inclusive) to end (exclusive) with a step, as in Python.
        
        With `manual_normalization` the caller guarantees 0 <= start <= end <= extent.
        """
    @overload
    def pad(self, pad_widths: Sizes, value: Operand = 0, *, name: _str | None = None) -> Tensor:
        """Pad with `value`: (before, after) pairs, last dim first; negative widths crop.
        
        The attribute of a node, and so this reference, holds a pair for every dim in order.
        """
    @overload
    def pad(self, *pad_widths: Size, value: Operand = 0, name: _str | None = None) -> Tensor:
        """Pad with `value`: (before, after) pairs, last dim first; negative widths crop.
        
        The attribute of a node, and so this reference, holds a pair for every dim in order.
        """
    @overload
    def pad(self, *args: Any, **options: Any) -> Tensor:
        """Pad with `value`: (before, after) pairs, last dim first; negative widths crop.
        
        The attribute of a node, and so this reference, holds a pair for every dim in order.
        """
    def cat(self, dim: _int = 0, *, name: _str | None = None) -> Tensor:
        """Concatenate tensors along `dim`."""
    @overload
    def update_slice(self, src: Operand, start_indices: Sizes, *, name: _str | None = None) -> Tensor:
        """Return `arg` with a slice replaced by `src`, at non-negative start indices.
        
        The slice must be within `arg`. If the output aliases `arg`, only the slice is written.
        """
    @overload
    def update_slice(self, *args: Any, **options: Any) -> Tensor:
        """Return `arg` with a slice replaced by `src`, at non-negative start indices.
        
        The slice must be within `arg`. If the output aliases `arg`, only the slice is written.
        """
    def absolute(self, *args: Any, **options: Any) -> Tensor:
        """absolute(input): abs(input)"""
    def adjoint(self, *args: Any, **options: Any) -> Tensor:
        """adjoint(input): transpose(input, -2, -1)"""
    def amax(self, *args: Any, **options: Any) -> Tensor:
        """amax(input, dim=none, keepdim=false): max(input, dim, keepdim)"""
    def amin(self, *args: Any, **options: Any) -> Tensor:
        """amin(input, dim=none, keepdim=false): min(input, dim, keepdim)"""
    def arccos(self, *args: Any, **options: Any) -> Tensor:
        """arccos(input): acos(input)"""
    def arccosh(self, *args: Any, **options: Any) -> Tensor:
        """arccosh(input): acosh(input)"""
    def arcsin(self, *args: Any, **options: Any) -> Tensor:
        """arcsin(input): asin(input)"""
    def arcsinh(self, *args: Any, **options: Any) -> Tensor:
        """arcsinh(input): asinh(input)"""
    def arctan(self, *args: Any, **options: Any) -> Tensor:
        """arctan(input): atan(input)"""
    def arctan2(self, *args: Any, **options: Any) -> Tensor:
        """arctan2(input, other): atan2(input, other)"""
    def arctanh(self, *args: Any, **options: Any) -> Tensor:
        """arctanh(input): atanh(input)"""
    def around(self, *args: Any, **options: Any) -> Tensor:
        """around(a): round(a)"""
    def astype(self, *args: Any, **options: Any) -> Tensor:
        """astype(x, dtype): cast(x, dtype)"""
    def bfloat16(self, *args: Any, **options: Any) -> Tensor:
        """x.bfloat16(): cast(self, bf16)"""
    def bmm(self, *args: Any, **options: Any) -> Tensor:
        """bmm(input, mat2): matmul(input, mat2)"""
    def bool(self, *args: Any, **options: Any) -> Tensor:
        """x.bool(): cast(self, bool)"""
    def broadcast_to(self, *args: Any, **options: Any) -> Tensor:
        """broadcast_to(input, size): expand(input, size)"""
    def byte(self, *args: Any, **options: Any) -> Tensor:
        """x.byte(): cast(self, u8)"""
    def cdouble(self, *args: Any, **options: Any) -> Tensor:
        """x.cdouble(): cast(self, c128)"""
    def cfloat(self, *args: Any, **options: Any) -> Tensor:
        """x.cfloat(): cast(self, c64)"""
    def char(self, *args: Any, **options: Any) -> Tensor:
        """x.char(): cast(self, i8)"""
    def clamp_max(self, *args: Any, **options: Any) -> Tensor:
        """clamp_max(input, max): minimum(input, max)"""
    def clamp_min(self, *args: Any, **options: Any) -> Tensor:
        """clamp_min(input, min): maximum(input, min)"""
    def clip(self, *args: Any, **options: Any) -> Any:
        """clip(input, min=none, max=none): clamp(input, min, max) or maximum(input, min) or minimum(input, max)"""
    def clone(self, *args: Any, **options: Any) -> Tensor:
        """clone(input): set(input)"""
    def concat(self, *args: Any, **options: Any) -> Tensor:
        """concat(tensors, dim=0): cat(tensors, dim)"""
    def concatenate(self, *args: Any, **options: Any) -> Tensor:
        """concatenate(tensors, dim=0): cat(tensors, dim)"""
    def constant_pad_nd(self, *args: Any, **options: Any) -> Tensor:
        """constant_pad_nd(input, pad, value=0): pad(input, pad, value)"""
    def contiguous(self, *args: Any, **options: Any) -> Tensor:
        """x.contiguous(): set(self)"""
    def convert_element_type(self, *args: Any, **options: Any) -> Tensor:
        """convert_element_type(operand, new_dtype): cast(operand, new_dtype)"""
    def degrees(self, *args: Any, **options: Any) -> Tensor:
        """degrees(x): rad2deg(x)"""
    def detach(self, *args: Any, **options: Any) -> Tensor:
        """detach(input): set(input)"""
    def double(self, *args: Any, **options: Any) -> Tensor:
        """x.double(): cast(self, f64)"""
    def dynamic_update_slice(self, *args: Any, **options: Any) -> Tensor:
        """dynamic_update_slice(operand, update, start_indices): update_slice(operand, update, start_indices)"""
    def embedding(self, *args: Any, **options: Any) -> Tensor:
        """embedding(input, weight, padding_idx=none): embedding_fwd(input, weight, padding_idx)"""
    def erf_inv(self, *args: Any, **options: Any) -> Tensor:
        """erf_inv(x): erfinv(x)"""
    def expand_dims(self, *args: Any, **options: Any) -> Tensor:
        """expand_dims(a, axis): unsqueeze(a, axis)"""
    def expit(self, *args: Any, **options: Any) -> Tensor:
        """expit(input): sigmoid(input)"""
    def fabs(self, *args: Any, **options: Any) -> Tensor:
        """fabs(x): abs(x)"""
    def fix(self, *args: Any, **options: Any) -> Tensor:
        """fix(input): trunc(input)"""
    def float(self, *args: Any, **options: Any) -> Tensor:
        """x.float(): cast(self, f32)"""
    def frobenius_norm(self, *args: Any, **options: Any) -> Tensor:
        """frobenius_norm(input, dim=none, keepdim=false): norm(input, 2.0, dim, keepdim)"""
    def gammaln(self, *args: Any, **options: Any) -> Tensor:
        """gammaln(input): lgamma(input)"""
    def greater(self, *args: Any, **options: Any) -> Tensor:
        """greater(input, other): gt(input, other)"""
    def greater_equal(self, *args: Any, **options: Any) -> Tensor:
        """greater_equal(input, other): ge(input, other)"""
    def half(self, *args: Any, **options: Any) -> Tensor:
        """x.half(): cast(self, f16)"""
    def hard_sigmoid(self, *args: Any, **options: Any) -> Tensor:
        """hard_sigmoid(x): hardsigmoid(x)"""
    def hard_silu(self, *args: Any, **options: Any) -> Tensor:
        """hard_silu(x): hardswish(x)"""
    def hard_swish(self, *args: Any, **options: Any) -> Tensor:
        """hard_swish(x): hardswish(x)"""
    def hard_tanh(self, *args: Any, **options: Any) -> Tensor:
        """hard_tanh(x): hardtanh(x)"""
    def identity(self, *args: Any, **options: Any) -> Tensor:
        """identity(n): eye(n)"""
    def int(self, *args: Any, **options: Any) -> Tensor:
        """x.int(): cast(self, i32)"""
    def integer_pow(self, *args: Any, **options: Any) -> Tensor:
        """integer_pow(x, y): pow(x, y)"""
    def invert(self, *args: Any, **options: Any) -> Tensor:
        """invert(x): bitwise_not(x)"""
    def item(self, *args: Any, **options: Any) -> Tensor:
        """x.item(): reshape(self, [])"""
    def left_shift(self, *args: Any, **options: Any) -> Tensor:
        """left_shift(x1, x2): bitwise_left_shift(x1, x2)"""
    def less(self, *args: Any, **options: Any) -> Tensor:
        """less(input, other): lt(input, other)"""
    def less_equal(self, *args: Any, **options: Any) -> Tensor:
        """less_equal(input, other): le(input, other)"""
    def log_sigmoid(self, *args: Any, **options: Any) -> Tensor:
        """log_sigmoid(x): logsigmoid(x)"""
    def logistic(self, *args: Any, **options: Any) -> Tensor:
        """logistic(x): sigmoid(x)"""
    def long(self, *args: Any, **options: Any) -> Tensor:
        """x.long(): cast(self, i64)"""
    def mm(self, *args: Any, **options: Any) -> Tensor:
        """mm(input, mat2): matmul(input, mat2)"""
    def moveaxis(self, *args: Any, **options: Any) -> Tensor:
        """moveaxis(input, source, destination): movedim(input, source, destination)"""
    def multiply(self, *args: Any, **options: Any) -> Tensor:
        """multiply(input, other): mul(input, other)"""
    def mv(self, *args: Any, **options: Any) -> Tensor:
        """mv(input, vec): matmul(input, vec)"""
    def negative(self, *args: Any, **options: Any) -> Tensor:
        """negative(input): neg(input)"""
    def not_equal(self, *args: Any, **options: Any) -> Tensor:
        """not_equal(input, other): ne(input, other)"""
    def permute_dims(self, *args: Any, **options: Any) -> Tensor:
        """permute_dims(a, axes): permute(a, axes)"""
    def positive(self, *args: Any, **options: Any) -> Tensor:
        """positive(input): set(input)"""
    def power(self, *args: Any, **options: Any) -> Tensor:
        """power(x1, x2): pow(x1, x2)"""
    def radians(self, *args: Any, **options: Any) -> Tensor:
        """radians(x): deg2rad(x)"""
    def ravel(self, *args: Any, **options: Any) -> Tensor:
        """ravel(input): flatten(input)"""
    def reduce_and(self, *args: Any, **options: Any) -> Tensor:
        """reduce_and(operand, axes): all(operand, axes)"""
    def reduce_max(self, *args: Any, **options: Any) -> Tensor:
        """reduce_max(operand, axes): max(operand, axes)"""
    def reduce_min(self, *args: Any, **options: Any) -> Tensor:
        """reduce_min(operand, axes): min(operand, axes)"""
    def reduce_or(self, *args: Any, **options: Any) -> Tensor:
        """reduce_or(operand, axes): any(operand, axes)"""
    def reduce_prod(self, *args: Any, **options: Any) -> Tensor:
        """reduce_prod(operand, axes): prod(operand, axes)"""
    def reduce_sum(self, *args: Any, **options: Any) -> Tensor:
        """reduce_sum(operand, axes): sum(operand, axes)"""
    def rem(self, *args: Any, **options: Any) -> Tensor:
        """rem(x, y): fmod(x, y)"""
    def rev(self, *args: Any, **options: Any) -> Tensor:
        """rev(operand, dimensions): flip(operand, dimensions)"""
    def right_shift(self, *args: Any, **options: Any) -> Tensor:
        """right_shift(x1, x2): bitwise_right_shift(x1, x2)"""
    def rint(self, *args: Any, **options: Any) -> Tensor:
        """rint(x): round(x)"""
    def sgn(self, *args: Any, **options: Any) -> Tensor:
        """sgn(input): sign(input)"""
    def shift_left(self, *args: Any, **options: Any) -> Tensor:
        """shift_left(x, y): bitwise_left_shift(x, y)"""
    def shift_right_arithmetic(self, *args: Any, **options: Any) -> Tensor:
        """shift_right_arithmetic(x, y): bitwise_right_shift(x, y)"""
    def shift_right_logical(self, *args: Any, **options: Any) -> Tensor:
        """shift_right_logical(x, y): logical_right_shift(x, y)"""
    def short(self, *args: Any, **options: Any) -> Tensor:
        """x.short(): cast(self, i16)"""
    def soft_sign(self, *args: Any, **options: Any) -> Tensor:
        """soft_sign(x): softsign(x)"""
    def split_with_sizes(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """split_with_sizes(input, split_sizes, dim=0): split(input, split_sizes, dim)"""
    def stop_gradient(self, *args: Any, **options: Any) -> Tensor:
        """stop_gradient(x): set(x)"""
    def subtract(self, *args: Any, **options: Any) -> Any:
        """subtract(input, other, alpha=1): sub(input, other) or input - alpha * other"""
    def swapaxes(self, *args: Any, **options: Any) -> Tensor:
        """swapaxes(input, axis0, axis1): transpose(input, axis0, axis1)"""
    def swapdims(self, *args: Any, **options: Any) -> Tensor:
        """swapdims(input, dim0, dim1): transpose(input, dim0, dim1)"""
    def swish(self, *args: Any, **options: Any) -> Tensor:
        """swish(input): silu(input)"""
    def t(self, *args: Any, **options: Any) -> Any:
        """t(input): set(input) or permute(input, [1, 0])"""
    def take_along_dim(self, *args: Any, **options: Any) -> Tensor:
        """take_along_dim(input, indices, dim): take_along_axis(input, indices, dim)"""
    def tensor_sizes(self, *args: Any, **options: Any) -> Vector:
        """tensor_sizes(arg): shape(arg)"""
    def tile(self, *args: Any, **options: Any) -> Tensor:
        """x.tile(*dims): repeat(self, dims)"""
    def top_k(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """top_k(operand, k): topk(operand, k)"""
    def torch_gather(self, *args: Any, **options: Any) -> Tensor:
        """torch_gather(arg, index, dim): gather(arg, index, dim)"""
    def true_divide(self, *args: Any, **options: Any) -> Tensor:
        """true_divide(input, other): truediv(input, other)"""
    def type(self, *args: Any, **options: Any) -> Tensor:
        """x.type(dtype): cast(self, dtype)"""
    def unsafe_chunk(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """unsafe_chunk(input, chunks, dim=0): chunk(input, chunks, dim)"""
    def unsafe_split(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """unsafe_split(input, split_size, dim=0): split(input, split_size, dim)"""
    def unsafe_split_with_sizes(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """unsafe_split_with_sizes(input, split_sizes, dim=0): split(input, split_sizes, dim)"""
    def view(self, *args: Any, **options: Any) -> Tensor:
        """x.view(*size): reshape(self, size)"""
