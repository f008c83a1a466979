"""The modules by which scripts know nvFuser, made of fusec."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from fusec.diagnostics import FusecError
from fusec.parse import dsl
from fusec.parse.dsl.datatype import DataType, need_dtype, of_dtype
from fusec.parse.dsl.refused import refuse
from fusec.version import __version__


class NvFuserModule(ModuleType):
    """A module that refuses by name what fusec does not have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refuse(name, self.__name__, [n for n in self.__dict__ if not n.startswith("_")])


class Fusion:
    """The handle of nvFuser's first versions: `FusionDefinition(fusion)` fills it."""

    def __init__(self) -> None:
        """Hold no definition yet."""
        self._definition: dsl.FusionDefinition | None = None

    def adopt_definition(self, definition: dsl.FusionDefinition) -> None:
        """Take the definition that is made with this handle."""
        self._definition = definition

    def execute(self, inputs: Iterable[Any], **options: Any) -> list[Any]:
        """Run the definition."""
        if self._definition is None:
            raise FusecError("the Fusion has no definition yet")
        return self._definition.execute(inputs, **options)


def dtype_of_torch(dtype: Any) -> DataType:
    """Return the DataType of a PyTorch dtype."""
    return of_dtype(need_dtype(dtype))


def version() -> str:
    """Return the version of fusec."""
    return __version__


def make_modules() -> dict[str, ModuleType]:
    """Return `nvfuser` and `nvfuser_direct` with their submodules, by full name."""
    names: dict[str, Any] = {
        "FusionDefinition": dsl.FusionDefinition, "DataType": dsl.DataType, "Fusion": Fusion,
        "Tensor": dsl.Tensor, "TensorView": dsl.Tensor, "Scalar": dsl.Scalar,
        "Vector": dsl.Vector, "version": version, "__version__": __version__,
    }  # fmt: skip
    helpers = {
        "torch_dtype_to_nvfuser_dtype": dtype_of_torch,
        "python_scalar_to_nvfuser_dtype": dtype_of_torch,
    }
    modules: dict[str, ModuleType] = {}
    for root in ("nvfuser", "nvfuser_direct"):
        package = NvFuserModule(root)
        package.__dict__.update(names, __path__=[])
        modules[root] = package
        for leaf, content in (("pytorch_utils", helpers), ("_C", names), ("_C_DIRECT", names)):
            module = NvFuserModule(f"{root}.{leaf}")
            module.__dict__.update(content)
            package.__dict__[leaf] = module
            modules[module.__name__] = module
    return modules
