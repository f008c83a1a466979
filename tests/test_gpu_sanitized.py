"""Every kernel of products and attention, launched twice: what `tests/sanitize.py` watches."""

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
