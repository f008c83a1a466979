"""Programs called on memory of a GPU, with PyTorch's tensors, CuPy's arrays and NumPy's."""

from __future__ import annotations

import gc
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from test_call_helper import IN_PLACE, ROWS, TWO
from test_calls import NORM

import fusec
from fusec import FusecError
from fusec.call import fast
from fusec.cli import run_main

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

DRAWN = """
fusion: drawn
dims: {B: 1024}
inputs:
  x: f32[B]
ops:
  - y = mul(x, uniform(0.0, 1.0, shape=[B], dtype=f32))
outputs: [y]
"""
PRODUCT = """
fusion: product
dims: {M: 256, N: 512, K: 128}
inputs:
  a: bf16[M, K]
  b: bf16[K, N]
ops:
  - y = relu(matmul(a, b))
outputs: [y]
"""


def drawn(*shape: int, seed: int = 0, dtype: Any = None) -> Any:
    """Return a random tensor on the GPU."""
    generator = torch.Generator("cuda").manual_seed(seed)
    made = torch.randn(shape, device="cuda", generator=generator)
    return made if dtype is None else made.to(dtype)


def in_use() -> int:
    """Return the bytes of the device that are taken, but for those that PyTorch holds."""
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def norm(x: Any, w: Any, eps: float = 1e-5) -> Any:
    """Return what NORM is, in fp64."""
    x = x.double()
    return x / torch.sqrt((x * x).mean(1, keepdim=True) + eps) * w


def close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    """Fail unless they agree."""
    torch.testing.assert_close(found.double(), wanted.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("helped", [True, False])
def test_tensors_in_and_out(helped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many calls, of changing sizes and numbers; outputs are tensors of their own."""
    if not helped:
        monkeypatch.setattr(fast, "helper", lambda: None)
    program = fusec.compile(NORM)
    kept: list[tuple[Any, Any]] = []
    for number in range(40):
        b, eps = (4, 4, 17, 1, 300)[number % 5], (1e-5, 0.5)[number % 2]
        x, w = drawn(b, 64, seed=number), drawn(64, seed=number + 1)
        y = program(x, w, eps)
        assert type(y) is torch.Tensor
        assert y.shape == x.shape
        kept.append((y, norm(x, w, eps)))
    for y, wanted in kept:
        close(y, wanted)
    assert len(program.variants) == 1


def test_two_kernels_on_two_streams_from_four_threads() -> None:
    """Nothing mixes: each stream has its own memory, and calls of one come one at a time."""
    program = fusec.compile(TWO)
    failures: list[BaseException] = []
    streams = [torch.cuda.Stream() for _ in range(2)]

    def work(number: int) -> None:
        try:
            with torch.cuda.stream(streams[number % 2]):
                for turn in range(60):
                    x = drawn(200 + turn, 96, seed=100 * number + turn)
                    z, y = program(x)
                    close(y, x.double().sum(0), 1e-4)
                    close(z, x.double() * x.double().sum(0), 1e-3)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.early
def test_memory_stays_flat_over_many_sizes() -> None:
    """Sixteen thousand calls of changing sizes leave the device's memory as it was.

    Other processes may take and free memory meanwhile; what these calls kept, each round would.
    """
    program = fusec.compile(ROWS)
    x = drawn(4096, 96)
    growth: list[int] = []
    before = 0
    for rounds in range(20):
        for number in range(800):
            program(x[: 2 * (1 + (800 * rounds + number) % 1500)])
        torch.cuda.synchronize()
        program(x)
        gc.collect()
        growth.append(in_use() - before)
        before = in_use()
    assert min(map(abs, growth[1:])) <= 2 << 20


def test_capture_by_the_caller() -> None:
    """Calls inside torch.cuda.graph are replayed with what the inputs then hold."""
    program = fusec.compile(TWO)
    x = drawn(300, 96)
    program(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z, y = program(x)
    for seed in (3, 4):
        x.copy_(drawn(300, 96, seed=seed))
        graph.replay()
        close(y, x.double().sum(0), 1e-4)
        close(z, x.double() * x.double().sum(0), 1e-3)
        program(drawn(300, 96, seed=9))


@pytest.mark.parametrize("helped", [True, False])
def test_replays(helped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of a program, as it was and with other arguments and numbers."""
    if not helped:
        monkeypatch.setattr(fast, "helper", lambda: None)
    program = fusec.compile(NORM)
    x, w = drawn(4, 64), drawn(64, seed=1)
    graph = program.graph(x, w)
    close(graph(), norm(x, w))
    x.copy_(drawn(4, 64, seed=5))
    close(graph(), norm(x, w))
    for seed in range(3):
        other, v = drawn(4, 64, seed=seed + 10), drawn(64, seed=seed + 20)
        close(graph(other, v, 0.25), norm(other, v, 0.25))
        close(graph(), norm(other, v, 0.25))
    with pytest.raises(FusecError, match="captured for other shapes"):
        graph(drawn(5, 64), w)
    both = fusec.compile(TWO).graph(drawn(300, 96))
    for seed in range(3):
        rows = drawn(300, 96, seed=seed)
        close(both(rows)[1], rows.double().sum(0), 1e-4)


def test_tensor_maps_follow_the_pointers() -> None:
    """Products read their factors by tensor maps: these are encoded for each address."""
    program = fusec.compile(PRODUCT)
    for seed in range(12):
        a, b = (
            drawn(256, 128, seed=seed, dtype=torch.bfloat16),
            drawn(128, 512, seed=seed + 50, dtype=torch.bfloat16),
        )
        close(program(a, b), torch.relu(a.double() @ b.double()), 0.05)
    graph = program.graph(a, b)
    for seed in range(3):
        a, b = (
            drawn(256, 128, seed=seed, dtype=torch.bfloat16),
            drawn(128, 512, seed=seed + 50, dtype=torch.bfloat16),
        )
        close(graph(a, b), torch.relu(a.double() @ b.double()), 0.05)


def test_lazy_views_are_refused() -> None:
    """A conjugated tensor, also after plain ones: its memory is not what it says."""
    text = "fusion: turned\ndims: {B: 32}\ninputs: {x: 'c64[B]'}\nops:\n  - y = mul(x, x)\n"
    program = fusec.compile(text + "outputs: [y]\n")
    x = torch.randn(32, device="cuda", dtype=torch.complex64)
    for _ in range(3):
        torch.testing.assert_close(program(x), x * x)
    with pytest.raises(FusecError, match="resolve_conj"):
        program(x.conj())


def test_in_place_and_out() -> None:
    """An aliased output is the input; `out` is filled; memory that is shared is refused."""
    program = fusec.compile(IN_PLACE)
    for seed in range(3):
        x, d = drawn(32, seed=seed), drawn(32, seed=seed + 10)
        wanted = x + 2 * d
        assert program(x, d) is x
        close(x, wanted)
    with pytest.raises(FusecError, match="shares memory with `d`"):
        program(x, x)
    plain = fusec.compile(NORM)
    x, w = drawn(4, 64), drawn(64)
    out = torch.empty_like(x)
    for seed in range(4):  # from the third call on by the helper, where there is one
        x = drawn(4, 64, seed=seed)
        assert plain(x, w, out=out) is out
        close(out, norm(x, w))
        close(plain(x, w), norm(x, w))
    with pytest.raises(FusecError, match="shares memory with argument `x`"):
        plain(x, w, out=x)
    with pytest.raises(FusecError, match="out: `y` is f32"):
        plain(x, w, out=torch.empty(64, 4, device="cuda").T)


def test_draws_are_the_generators() -> None:
    """Two calls draw different numbers; the same seed draws the same ones again."""
    program = fusec.compile(DRAWN)
    x = torch.ones(1024, device="cuda")
    torch.manual_seed(3)
    first, second = program(x), program(x)
    torch.manual_seed(3)
    again = program(x)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    graph = program.graph(x)
    assert not torch.equal(graph().clone(), graph().clone())
    with (
        pytest.raises(FusecError, match="generates random numbers"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        program(x)
    assert torch.equal(
        fusec.compile(NORM)(drawn(4, 64), drawn(64)).isnan().any(), torch.tensor(False).cuda()
    )


def test_arrays_of_numpy_are_copied() -> None:
    """There and back; what is written in place is written into the caller's array."""
    x, w = drawn(4, 64), drawn(64)
    found = fusec.compile(NORM)(x.cpu().numpy(), w.cpu().numpy())
    assert type(found) is np.ndarray
    close(torch.from_numpy(found.copy()).cuda(), norm(x, w))
    a, d = (drawn(32, seed=k).cpu().numpy() for k in (1, 2))
    wanted = a + 2 * d
    assert fusec.compile(IN_PLACE)(a, d) is a
    np.testing.assert_allclose(a, wanted, rtol=1e-6)


def test_arrays_of_cupy() -> None:
    """In and out, on CuPy's current stream."""
    cupy: Any = pytest.importorskip("cupy")
    program = fusec.compile(NORM)
    x, w = drawn(4, 64), drawn(64)
    torch.cuda.synchronize()
    for _ in range(3):
        y = program(cupy.from_dlpack(x), cupy.from_dlpack(w))
        assert type(y) is cupy.ndarray
        cupy.cuda.get_current_stream().synchronize()
        close(torch.from_dlpack(y), norm(x, w))


def test_arrays_of_numba() -> None:
    """In and out, by `__cuda_array_interface__`."""
    cuda: Any = pytest.importorskip("numba.cuda")
    program = fusec.compile(NORM)
    x, w = drawn(4, 64), drawn(64)
    torch.cuda.synchronize()
    for _ in range(3):
        y = program(cuda.as_cuda_array(x), cuda.as_cuda_array(w))
        assert type(y).__module__.startswith("numba")
        close(torch.from_numpy(y.copy_to_host()).cuda(), norm(x, w))


def test_arrays_of_jax() -> None:
    """In and out, by DLPack."""
    jax: Any = pytest.importorskip("jax")
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError:
        pytest.skip("JAX has no GPU")
    program = fusec.compile(NORM)
    x, w = drawn(4, 64), drawn(64)
    there = [jax.device_put(a.cpu().numpy(), device) for a in (x, w)]
    for _ in range(3):
        y = program(*there)
        assert isinstance(y, jax.Array)
        close(torch.from_numpy(np.array(y)).to(x.device), norm(x, w))


def test_arrays_by_their_interfaces() -> None:
    """Anything with DLPack or `__cuda_array_interface__`; outputs have both."""

    class Interface:
        def __init__(self, tensor: Any) -> None:
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__
            self.kept = tensor

    class Packed:
        def __init__(self, tensor: Any) -> None:
            self.kept = tensor

        def __dlpack__(self, **options: Any) -> Any:
            return self.kept.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.kept.__dlpack_device__()

    program = fusec.compile(NORM)
    x, w = drawn(4, 64), drawn(64)
    torch.cuda.synchronize()
    for kind in (Interface, Packed):
        y = program(kind(x), kind(w))
        close(torch.from_dlpack(y), norm(x, w))
        close(torch.as_tensor(y, device="cuda"), norm(x, w))


def test_wrong_arguments_launch_nothing() -> None:
    """Each is named; the context is usable afterwards."""
    program = fusec.compile(NORM)
    x, w = drawn(4, 64), drawn(64)
    freed = drawn(4, 64)
    freed.untyped_storage().resize_(0)
    for given, message in (
        ((x, w.cpu()), "`w` is on the CPU, `x` is on GPU 0"),
        ((x, w.double()), "`w` is f64"),
        ((x.T.contiguous().T, w), "stride"),
        ((freed, w), "freed"),
        ((drawn(257)[1:].view(4, 64), w), "multiple of 16"),
        ((x, w[:32]), "expected 64"),
        ((x, w, torch.tensor(1.0, device="cuda")), "got an array on a GPU"),
    ):
        with pytest.raises(FusecError, match=message):
            program(*given)
    close(program(x, w), norm(x, w))


def test_a_folder_is_loaded(tmp_path: Path) -> None:
    """fusec.load runs what `fusec compile` has written; another size builds, or is refused."""
    file = tmp_path / "norm.yaml"
    file.write_text(NORM)
    assert run_main(["compile", str(file), "-o", str(tmp_path / "d")]) == 0
    program = fusec.load(tmp_path / "d")
    x, w = drawn(9, 64), drawn(64)
    close(program(x, w), norm(x, w))
    x, w = drawn(9, 128), drawn(128)
    with pytest.raises(FusecError, match="dynamic: B; specialized: H = 64"):
        fusec.load(tmp_path / "d", build=False)(x, w)
    close(program(x, w), norm(x, w))


def test_definitions_run_as_programs() -> None:
    """fd.execute on tensors: of any sizes, with other numbers, and after more was defined."""
    fd = fusec.FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=fusec.DataType.Float)
    s = fd.define_scalar(dtype=fusec.DataType.Double)
    fd.add_output(fd.ops.mul(x, s))
    for b, h, factor in ((4, 8, 2.0), (4, 8, 3.0), (4, 8, -1.5), (5, 16, 2.0), (4, 8, 2.0)):
        t = drawn(b, h)
        (found,) = fd.execute([t, factor])
        assert found.shape == t.shape
        close(found, t * factor)
    fd.add_output(fd.ops.sum(x, dims=[1]))
    for _ in range(2):
        t = drawn(4, 8, seed=3)
        first, second = fd.execute((t, 2.0))
        close(first, t * 2)
        close(second, t.sum(1))


def test_definitions_write_into_tensors() -> None:
    """An aliased output is written where the input lies, and not returned."""
    fd = fusec.FusionDefinition()
    x = fd.define_tensor(shape=[-1], contiguity=[True], dtype=fusec.DataType.Float)
    y = fd.ops.add(x, 1.0)
    fd.add_output(y, x)
    fd.add_output(fd.ops.mul(y, 2.0))
    for _ in range(3):
        t = drawn(64)
        wanted = t + 1
        (found,) = fd.execute([t])
        close(t, wanted)
        close(found, wanted * 2)


def test_the_readme_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Python runs, and computes a layer norm."""
    root = ROOT
    monkeypatch.chdir(root)
    text = (root / "README.md").read_text(encoding="utf-8")
    (code,) = (c for c in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "program(" in c)
    names: dict[str, Any] = {}
    exec(code, names)
    x, w, b = (names[n] for n in "xwb")
    wanted = torch.nn.functional.layer_norm(x.float(), (8192,), w.float(), b.float(), 1e-6)
    close(names["y"], wanted, 0.02)
    close(names["replay"](), wanted, 0.02)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_tensors_of_another_gpu() -> None:
    """Results lie where the inputs do; the current device does not matter, and does not change."""
    program = fusec.compile(TWO)
    for device in (0, 1, 1, 0):
        x = drawn(300, 96, seed=device).to(f"cuda:{device}")
        z, y = program(x)
        assert z.device == x.device
        assert torch.cuda.current_device() == 0
        close(y, x.double().sum(0), 1e-4)
        close(z, x.double() * x.double().sum(0), 1e-3)


def test_validate_compares_what_execute_returns() -> None:
    from fusec.nvfuser.definition import DirectDefinition
    from fusec.parse.dsl import DataType

    x = drawn(64, 5000).bfloat16()
    with DirectDefinition() as fd:
        wide = fd.ops.cast(
            fd.define_tensor(shape=[-1, -1], dtype=DataType.BFloat16), DataType.Float
        )
        fd.add_output(fd.ops.sum(fd.ops.exp(wide), [0]))
        fd.add_output(fd.ops.cast(fd.ops.mul(wide, 2.0), DataType.BFloat16))
    for checked, run in zip(fd.validate([x]), fd.execute([x]), strict=True):
        assert torch.equal(checked, run)


def test_validate_reads_inputs_before_outputs_are_written_there() -> None:
    from fusec.nvfuser.definition import DirectDefinition

    x = drawn(100)
    before = x.clone()
    with DirectDefinition() as fd:
        given = fd.from_pytorch(x)
        fd.add_output(fd.ops.add(given, 1.0), given)
        fd.add_output(fd.ops.mul(given, 3.0))
    (tripled,) = fd.validate([x])
    close(x, before + 1)
    close(tripled, before * 3)
