"""The records of matrix products: each kernel has its own fields, and files name all of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from draws import drawn
from hypothesis import given
from hypothesis import strategies as st

from fusec.schedule.matmul.choice import KERNELS, LACKING, MatmulParameters
from fusec.schedule.matmul.hopper import StreamKParameters
from fusec.schedule.matmul.limits import STREAM_K
from fusec.schedule.matmul.records import RECORDS, with_settings
from fusec.segment.protocol import Refusal

FREE = {f.name: f.values for f in MatmulParameters.free}
ALL = (*RECORDS.values(), StreamKParameters)


def of_kernel(name: str) -> MatmulParameters:
    """Return some record of a kernel."""
    return RECORDS[name](tile_m=64, tile_n=64, tile_k=64, stages=2)


def test_each_kernel_has_a_record() -> None:
    assert tuple(RECORDS) == KERNELS
    assert [record.kernel for record in RECORDS.values()] == [*KERNELS]


@pytest.mark.parametrize("record", ALL)
def test_a_free_field_is_the_kernels_own_or_lacking(record: type[MatmulParameters]) -> None:
    own = {f.name for f in fields(record)}
    assert own | {"kernel"} >= FREE.keys() - LACKING.keys()
    assert record.lacking.keys() == LACKING.keys()
    settings = of_kernel(record.kernel).settings
    assert {n: settings[n] for n in LACKING.keys() - own} == {
        n: lacking.value for n, lacking in LACKING.items() if n not in own
    }
    assert all(lacking.value in FREE[name] for name, lacking in record.lacking.items())


@drawn(300)
@given(st.data())
def test_a_record_has_its_settings_or_a_reason(data: st.DataObject) -> None:
    first = of_kernel(data.draw(st.sampled_from(KERNELS)))
    for _ in range(3):
        names = data.draw(st.sets(st.sampled_from(sorted(FREE)), max_size=4))
        settings: dict[str, Any] = {
            n: data.draw(st.sampled_from(list(FREE[n])[:40])) for n in names
        }
        wanted = {**first.settings, **settings}
        found = with_settings(first, settings)
        if isinstance(found, Refusal):
            own = {f.name for f in fields(RECORDS[wanted["kernel"]])}
            others = {n: wanted[n] for n in LACKING.keys() - own}
            assert any(value != LACKING[n].value for n, value in others.items())
            assert f"`{wanted['kernel']}`" in found.because
            continue
        assert found.settings == wanted
        is_stream_k = (wanted["kernel"], wanted["split_method"]) == ("split_k", STREAM_K)
        assert type(found) is (StreamKParameters if is_stream_k else RECORDS[wanted["kernel"]])
        again = with_settings(of_kernel(found.kernel), found.settings)
        assert again == found
        first = found


def test_dumps_have_the_fields_of_all_kernels() -> None:
    names = {tuple(of_kernel(name).written) for name in KERNELS}
    assert len(names) == 1
    assert FREE.keys() - {"workspace_dtype"} <= {*names.pop()}
