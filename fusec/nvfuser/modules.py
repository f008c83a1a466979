"""The modules that programs import nvFuser by, implemented by fusec."""

from __future__ import annotations

import dis
import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from fusec.diagnostics import FusecError, Unsupported
from fusec.nvfuser import caches, definition, descriptors, multidevice, profiler, repro, versions
from fusec.nvfuser.shardings import execute_with_dtensors
from fusec.parse import dsl
from fusec.parse.dsl.loops import ParallelType
from fusec.parse.dsl.mesh import DeviceMesh
from fusec.parse.dsl.refused import UnsupportedName, refuse
from fusec.parse.dsl.scheduled import MemoryType

_UNSUPPORTED = """
    CacheOp LoadStoreOpType IdMappingMode SchedulerType LaunchParams CompileParams HeuristicParams
    PointwiseParams ReductionParams MatmulParams KernelExecutor idm schedule
    nvf_cutlass Merge Split IterDomain BroadcastOp SqueezeOp ReshapeOp
"""
"""Names that clients import at the top of a file, and rarely use."""

_SUBMODULES = ("pytorch_utils", "benchmark_utils")
_NORMALIZATION = "contrib.nn.normalization"


class MissingImport(FusecError, ImportError):
    """`from nvfuser import` of a name that does not exist."""


class UnsupportedImport(Unsupported, ImportError):
    """`from nvfuser import` of a name that fusec does not support."""


class Refused:
    """A part of nvFuser's API that can be imported and named, but raises when called."""

    def __init__(self, name: str, module: str) -> None:
        """Represent `name` of `module`."""
        self._path, self._module = name, module

    def __getattr__(self, name: str) -> Refused:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Refused(f"{self._path}.{name}", self._module)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise refuse(self._path.partition(".")[0], self._module)

    def __repr__(self) -> str:
        return f"{self._module}.{self._path}"


class NvFuserModule(ModuleType):
    """A module that knows the names that fusec does not have, and loads PyTorch lazily."""

    def __init__(self, name: str, content: dict[str, Any], source: str | None = None) -> None:
        """Hold `content`, and the names of the module `source`."""
        super().__init__(name)
        self.__dict__.update(content, __path__=[])
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._source is not None:
            module = importlib.import_module(self._source)
            if hasattr(module, name):
                return getattr(module, name)
        error = refuse(name, self.__name__, [n for n in self.__dict__ if not n.startswith("_")])
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        opcode = caller.f_code.co_code[caller.f_lasti]
        if dis.opname[opcode] != "IMPORT_FROM":
            raise error
        # An AttributeError would become an ImportError without location and advice.
        kind = UnsupportedImport if isinstance(error, UnsupportedName) else MissingImport
        old = error.diagnostic
        raise kind(old.message, span=old.span, notes=old.notes, help=old.help, code=error.code)


def make_modules() -> dict[str, ModuleType]:
    """Return `nvfuser` and `nvfuser_direct` with their submodules, by full name."""
    modules: dict[str, ModuleType] = {}
    for root, made in _DEFINITIONS.items():
        names = {**_names(root), "FusionDefinition": made}
        version_module = f"{root}_version"
        leaves = {
            **{leaf: NvFuserModule(f"{root}.{leaf}", {}, f"fusec.nvfuser.{leaf}")
               for leaf in _SUBMODULES},
            **{leaf: NvFuserModule(f"{root}.{leaf}", names) for leaf in ("_C", "_C_DIRECT")},
            version_module: NvFuserModule(f"{root}.{version_module}", _VERSION),
            "contrib": NvFuserModule(f"{root}.contrib", {}),
            "multidevice": NvFuserModule(f"{root}.multidevice", _SEVERAL),
        }  # fmt: skip
        modules |= {m.__name__: m for m in (NvFuserModule(root, {**names, **leaves}),)}
        modules |= {m.__name__: m for m in leaves.values()}
        modules |= _normalization(root, leaves["contrib"])
    return modules


_DEFINITIONS: dict[str, type[definition.FusionDefinition]] = {
    "nvfuser": definition.FusionDefinition,
    "nvfuser_direct": definition.DirectDefinition,
}
_SEVERAL = {
    kind.__name__: kind
    for kind in (
        DeviceMesh, multidevice.Communicator, multidevice.CommunicatorBackend,
        multidevice.MultiDeviceExecutor, multidevice.MultiDeviceExecutorParams,
        multidevice.Sharding, multidevice.shard_tensor,
    )
}  # fmt: skip
"""Contents of the submodule `multidevice`; all but `shard_tensor` are in the module too."""
_VERSION = {
    "Version": versions.Version,
    "NvfuserVersion": versions.Version,
    "__version__": versions.__version__,
}


def _names(root: str) -> dict[str, Any]:
    names: dict[str, Any] = {
        "DataType": dsl.DataType, "Tensor": dsl.Tensor, "TensorView": dsl.Tensor,
        "Scalar": dsl.Scalar, "Vector": dsl.Vector, "Fusion": caches.Fusion,
        "FusionCache": caches.FusionCache, "FusionExecutorCache": caches.FusionExecutorCache,
        "LRUCache": caches.LRUCache, "LruFusionCache": caches.LruFusionCache,
        "PythonProfiler": profiler.PythonProfiler, "FusionProfile": profiler.FusionProfile,
        "get_fusion_profile": profiler.get_fusion_profile, "clone": repro.clone,
        "translate_fusion": _translate,
        "compute_contiguity": descriptors.compute_contiguity,
        "compute_tensor_descriptor": descriptors.compute_tensor_descriptor,
        "enable_automatic_serialization": _nothing, "disable_automatic_serialization": _nothing,
        "execute_with_dtensors": execute_with_dtensors,
        "ParallelType": ParallelType, "MemoryType": MemoryType, **_SEVERAL,
        "version": versions.version, "__version__": versions.__version__,
    }  # fmt: skip
    return {**{name: Refused(name, root) for name in _UNSUPPORTED.split()}, **names}


def _translate(fusion: caches.Fusion) -> str:
    """Return the text that defines a fusion again."""
    return repr(fusion.definition)


def _nothing() -> None:
    """Keep no cache between processes other than fusec's own, which needs no call."""


def _normalization(root: str, contrib: ModuleType) -> dict[str, ModuleType]:
    """Return the submodules of `contrib`."""
    norms = NvFuserModule(f"{root}.{_NORMALIZATION}", {}, "fusec.nvfuser.normalization")
    nn = NvFuserModule(f"{root}.contrib.nn", {"normalization": norms})
    contrib.__dict__["nn"] = nn
    return {module.__name__: module for module in (nn, norms)}
