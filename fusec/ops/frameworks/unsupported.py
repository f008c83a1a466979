"""PyTorch's names without an equivalent in fusec, by reason; some have a suggested alternative."""

UNSUPPORTED = {
    "convolutions have no kernels: run it in PyTorch, and fuse what comes before and after it; one "
    "of 1 x 1 is a `linear` over channels": """
        conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
        convolution cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu
        cudnn_convolution_transpose miopen_convolution miopen_convolution_add_relu
        miopen_convolution_relu miopen_convolution_transpose miopen_depthwise_convolution
        mkldnn_convolution fold unfold unfold_copy
    """,
    "sliding windows have no kernels; for non-overlapping windows, reshape and reduce": """
        avg_pool3d lp_pool2d lp_pool3d max_pool3d max_pool1d_with_indices
        max_pool2d_with_indices max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d
        adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
        adaptive_max_pool3d_with_indices fractional_max_pool2d fractional_max_pool2d_with_indices
        fractional_max_pool3d fractional_max_pool3d_with_indices mkldnn_adaptive_avg_pool2d
        mkldnn_max_pool2d mkldnn_max_pool3d quantized_max_pool1d quantized_max_pool2d
        quantized_max_pool3d
    """,
    "it has no kernel: of 3 channels write `s = pad(x * x, [0, 0, 0, 0, 1, 1])`, and "
    "`y = x / (k + alpha / 3 * (s[:, :-2] + s[:, 1:-1] + s[:, 2:])) ** beta`": """
        local_response_norm
    """,
    "interpolation and sampling of images have no kernels": """
        upsample upsample_bilinear upsample_nearest grid_sample grid_sampler
        grid_sampler_2d grid_sampler_3d affine_grid affine_grid_generator
        cudnn_affine_grid_generator cudnn_grid_sampler
    """,
    "the shape of its result depends on the data; a mask with `where` keeps the shape": """
        argwhere combinations masked_scatter
        masked_select nonzero nonzero_static segment_reduce unique unique_consecutive unique_dim
        unravel_index is_nonzero tolist sparse_mask
    """,
    "histograms have no kernel: sum `one_hot` of the bins": """
        histc histogram histogramdd
    """,
    "it is written with `cov` and the deviations": """
        corrcoef
    """,
    "pad each matrix with zeros, and join the results with `cat`": """
        block_diag
    """,
    "order statistics: write `s, i = sort(x, dim)` and `select(s, k, dim)`, or `topk`": """
        mode nanmedian nanquantile quantile
    """,
    "factorizations, inverses and solvers of matrices have no kernels": """
        cholesky cholesky_inverse cholesky_solve det eig geqrf inverse lobpcg logdet lstsq lu
        lu_solve lu_unpack matrix_exp nuclear_norm orgqr ormqr pca_lowrank pinverse
        qr slogdet solve svd svd_lowrank symeig triangular_solve
    """,
    "Fourier transforms have no kernels": """
        stft istft kaiser_window
    """,
    "special functions without a CUDA expression here": """
        airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t
        chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w digamma gammainc
        gammaincc hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e igamma igammac
        laguerre_polynomial_l legendre_polynomial_p modified_bessel_i0 modified_bessel_i1
        modified_bessel_k0 modified_bessel_k1 multigammaln mvlgamma polygamma psi
        scaled_modified_bessel_k0 scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t
        shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
        shifted_chebyshev_polynomial_w spherical_bessel_j0 zeta frexp lcm
    """,
    "sums over free indices are written with permute, reshape and matmul": """
        einsum
    """,
    "random numbers of this kind have no kernel; `uniform`, `normal` and `dropout` have": """
        binomial poisson randint randint_like randperm cauchy_ geometric_ log_normal_
        random_ alpha_dropout feature_alpha_dropout feature_dropout dropout1d dropout2d dropout3d
    """,
    "recurrent layers have no kernels": """
        gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell miopen_rnn
        mkldnn_rnn_layer quantized_gru_cell quantized_lstm_cell quantized_rnn_relu_cell
        quantized_rnn_tanh_cell
    """,
    "losses over alignments, and over all pairs of classes, have no kernels": """
        ctc_loss miopen_ctc_loss multi_margin_loss multilabel_margin_loss
        triplet_margin_with_distance_loss pdist
    """,
    "colliding indices can only be summed: `scatter_add`, `index_add`": """
        index_reduce put as_strided_scatter diagonal_scatter
    """,
    "the gradient of samples along a dim is a difference of slices": """
        gradient
    """,
    "quantized tensors are low-precision values with separate scales (docs/products.md)": """
        choose_qparams_optimized empty_quantized fake_quantize_per_channel_affine
        fused_moving_avg_obs_fake_quant int_repr is_quantized
        q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point
        qscheme quantize_per_tensor_dynamic quantized_batch_norm fbgemm_linear_fp16_weight
        fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
        fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight
        fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix
    """,
    "sparse tensors are not supported": """
        ccol_indices ccol_indices_copy coalesce col_indices col_indices_copy crow_indices
        crow_indices_copy dense_dim dsmm hsmm hspmm indices indices_copy is_coalesced is_sparse
        is_sparse_csr resize_as_sparse_ row_indices row_indices_copy saddmm smm sparse_bsc_tensor
        sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor
        sparse_csr_tensor sparse_dim sparse_resize_ sparse_resize_and_clear_ spmm sspaddmm
        to_dense to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr
        values values_copy to_mkldnn to_padded_tensor
    """,
    "tensors of a fusion have no storage; an input's layout is declared with `strides`": """
        as_strided as_strided_copy data_ptr dim_order element_size empty_permuted empty_strided
        is_contiguous is_set_to is_shared itemsize nbytes new_empty_strided pin_memory is_pinned
        resize resize_ resize_as resize_as_ set_ share_memory_ storage storage_offset
        storage_type stride untyped_storage slice_inverse from_file from_numpy frombuffer numpy
        alias_copy expand_copy slice_copy view_copy squeeze_copy
    """,
    "dims are named under `dims:`, and shapes are checked by these names": """
        align_as align_tensors align_to has_names names refine_names rename rename_
    """,
    "shapes and types are static: a fusion does not query them at run time": """
        broadcast_shapes can_cast device dim dtype get_device is_complex is_conj is_cpu is_cuda
        is_distributed is_floating_point is_inference is_ipu is_leaf is_meta is_mps is_neg
        is_same_size is_signed is_storage is_tensor is_vulkan_available is_xla is_xpu layout
        ndimension nelement promote_types result_type typename is_cudnn_acceptable
        cudnn_is_acceptable sym_float sym_fresh_size sym_int sym_ite sym_max sym_min sym_not
        sym_sum sym_constrain_range sym_constrain_range_for_size expand_single_value
        list_or_empty assert_int_or_pair enum_list_as_int_list broadcast_tensors
        hash_tensor resolve_conj resolve_neg
    """,
    "a fusion runs on one GPU, where the caller's tensors are": """
        cpu cuda ipu mtia xpu to_device record_stream get_default_device set_default_device
        get_device_module
    """,
    "gradients are not recorded: a fusion contains an explicit graph, forward or backward": """
        backward enable_grad grad grad_dtype inference_mode is_grad_enabled
        is_inference_mode_enabled no_grad register_hook register_post_accumulate_grad_hook
        reinforce requires_grad retain_grad retains_grad detach_copy vmap
    """,
    "a fusion records no gradients: call the function itself": """
        checkpoint
    """,
    "it is a setting or a tool of PyTorch, not an operation on tensors": """
        BoolStorage BoolTensor ByteStorage ByteTensor CharStorage CharTensor DoubleStorage
        DoubleTensor Event FloatStorage FloatTensor Generator GradScaler IntStorage IntTensor
        LongStorage LongTensor ShortStorage ShortTensor Stream SymBool SymFloat SymInt Tensor
        TypedStorage UntypedStorage apply_ are_deterministic_algorithms_enabled as_subclass
        autocast chalf compile cond export get_default_dtype get_deterministic_debug_mode
        get_float32_matmul_precision get_num_interop_threads get_num_threads get_rng_state index
        init_num_threads initial_seed is_deterministic_algorithms_warn_only_enabled
        is_warn_always_enabled load manual_seed map2_ map_ module_load new save seed
        set_default_tensor_type set_deterministic_debug_mode set_float32_matmul_precision
        set_flush_denormal set_num_interop_threads set_num_threads set_printoptions set_rng_state
        set_warn_always use_deterministic_algorithms
    """,
    "an internal function of one of PyTorch's backends": """
        batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt
        batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats
        batch_norm_update_stats cudnn_batch_norm embedding_renorm_ miopen_batch_norm
        mkldnn_linear_backward_weights
    """,
}
"""Unsupported names by reason."""

IN_PLACE = (
    "tensors of a fusion are immutable; to write to an input's memory, use `- y: {alias: x}` "
    "under `outputs:`"
)
"""The note about a name that ends in `_` if the name without it is known."""

_LINALG = "factorizations, inverses and solvers of matrices have no kernels"
MODULES = {
    "torch.fft": "Fourier transforms have no kernels",
    "np.fft": "Fourier transforms have no kernels",
    "jnp.fft": "Fourier transforms have no kernels",
    "torch.linalg": _LINALG,
    "linalg": _LINALG,
    "np.linalg": _LINALG,
    "jnp.linalg": _LINALG,
    "torch.sparse": "sparse tensors are not supported",
    "torch.distributions": "a distribution is an object: write the formula of its density",
    "torch.cuda": "it is a setting of the device, not an operation on tensors",
    "torch.distributed": "calls among ranks come from `mesh` and `shardings` (docs/sharding.md)",
    "dist": "calls among ranks come from `mesh` and `shardings` (docs/sharding.md)",
    "torch.autograd": "gradients are not recorded: a fusion contains an explicit graph",
    "torchvision.ops": "it is not an operation on one tensor: write its formula",
    "torch.random": "random numbers are `uniform`, `normal`, `rand_like` and `dropout`",
}
"""Modules with unsupported functions, and why; functions of other modules have separate entries."""
