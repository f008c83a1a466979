"""Every kernel of products and attention, launched twice: what `tests/sanitize.py` watches.

Once where sums are in no order, since two runs are to be equal.
"""

from __future__ import annotations

import pytest
from gpu_check import options, run_again
from gpu_variants import VARIANTS

from fusec import driver
from fusec.run.inputs import choose_sizes, random_inputs


@pytest.mark.gpu
@pytest.mark.parametrize("name", VARIANTS)
def test_launches(name: str) -> None:
    variant = VARIANTS[name]
    fusion, runs = variant.fusion, 2 if variant.ordered else 1
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 0)
    run_again(driver.compile_fusion(fusion, options()), inputs, sizes, runs)
