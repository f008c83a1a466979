"""Emitted C of loops over streams and of several ranks computes what fusec does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emitted_ranks import packaged, results
from rank_verdicts import expected_of_ranks  # noqa: F401
from test_parallel_examples import SIZES, small

from fusec import driver
from fusec.parse import read_text
from fusec.run.inputs import choose_sizes, random_inputs

@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("count", [2, 4])
def test_examples(name: str, count: int, tmp_path: Path) -> None:
    fusion = small(name, count)
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 3, "integers")
    package = packaged(fusion)
    expected = driver.reference(fusion, inputs, sizes)
    for found in results(package, inputs, tmp_path, range(3)):
        for n, array in found.items():
            np.testing.assert_allclose(array, expected[n], rtol=1e-4, atol=1e-4, err_msg=n)
