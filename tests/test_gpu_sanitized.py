"""Every kernel of products and attention, launched twice: what to watch by compute-sanitizer.

compute-sanitizer --tool memcheck --error-exitcode 9 python -m pytest -m gpu \
    'tests/test_gpu_sanitized.py::test_two_launches[slices]'

also with racecheck and synccheck. Nothing but fusec's kernels runs on the GPU.
"""

from __future__ import annotations

import pytest
from gpu_check import options, run_again
from gpu_variants import VARIANTS

from fusec import driver
from fusec.run.inputs import choose_sizes, random_inputs


@pytest.mark.gpu
@pytest.mark.parametrize("name", VARIANTS)
def test_two_launches(name: str) -> None:
    fusion = VARIANTS[name].fusion
    sizes = choose_sizes(fusion)
    run_again(driver.compile_fusion(fusion, options()), random_inputs(fusion, sizes, 0), sizes, 2)
