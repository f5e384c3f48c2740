"""A layout rewrite as Relax ops: what is written is read back as the same, and computes what the rewrite says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import stock_results
from hypothesis import given, settings
from tir.test_rewrite_form import blocked, nhwc, numbered, rewrites, row_major
from tvm import ir, relax

from eqsat_layout.graph.legalised_calls import legalise_calls
from eqsat_layout.graph.rewrite_form import write_relax
from eqsat_layout.graph.templates import Template
from eqsat_layout.maps import UNDEF, Format, IndexMap
from eqsat_layout.tir.layout_rewrite import LayoutRewrite
from eqsat_layout.tir.rewrite_form import join, read_primfunc, write_primfunc

_ANY_VALUE = "relax.layout_transform"
"""The op whose missing pad value means any value; its TIR writes 0."""


def read_relax(calls: list[Any]) -> LayoutRewrite | None:
    """The one rewrite that ``calls``, each over the result of the one before, are; ``None`` if they are none."""
    whole: LayoutRewrite | None = None
    for call, legalised in zip(calls, legalise_calls(calls), strict=True):
        own = None if legalised.func is None else read_primfunc(legalised.func)
        if own is None:
            return None
        if own.is_padding and isinstance(call.op, ir.Op) and call.op.name == _ANY_VALUE:
            fill = own.fill if call.attrs.pad_value is not None else UNDEF
            own = LayoutRewrite(own.unpack, own.crop, own.pad, fill, own.pack)
        whole = own if whole is None else join(whole, own)
        if whole is None:
            return None
    return whole


def names(calls: list[Any]) -> list[str]:
    return [str(call.op.name).removeprefix("relax.") for call in calls]


@given(rewrites())
@settings(max_examples=60)
def test_what_is_written_is_read_back(rewrite: LayoutRewrite) -> None:
    calls = write_relax(rewrite, "float32")
    if rewrite.is_identity:
        assert not calls
        return
    found = read_relax(calls)
    assert found is not None
    source = numbered(rewrite.shape)
    np.testing.assert_array_equal(found.apply(source), rewrite.apply(source))
    if rewrite.fill is UNDEF and any(low for low, _ in rewrite.pad):
        assert found.fill == 0.0  # it serves; no Relax op says it exactly
    else:
        assert found.fill is rewrite.fill or found.fill == rewrite.fill


@given(rewrites())
@settings(max_examples=40)
def test_from_a_primfunc_to_relax_and_back(rewrite: LayoutRewrite) -> None:
    normal = read_primfunc(write_primfunc(rewrite, "float32"))
    assert normal is not None
    calls = write_relax(normal, "float32")
    found = read_relax(calls) if calls else normal
    assert found is not None
    if found.fill is UNDEF or normal.fill is not UNDEF:
        again = read_primfunc(write_primfunc(found, "float32"))
        assert again == normal


@pytest.mark.parametrize(
    ("before", "after", "ops"),
    [
        (row_major(), nhwc(), ["permute_dims"]),
        (row_major(), blocked(4), ["layout_transform"]),
        (blocked(4), row_major(), ["layout_transform", "strided_slice"]),
        (blocked(4), blocked(16), ["layout_transform"]),
        (blocked(4), blocked(9), ["layout_transform", "strided_slice", "layout_transform"]),
    ],
)
def test_the_ops_that_are_written(before: Format, after: Format, ops: list[str]) -> None:
    rewrite = LayoutRewrite.between(before, after)
    assert rewrite is not None
    calls = write_relax(rewrite, "float32")
    assert names(calls) == ops
    assert read_relax(calls) == rewrite


def test_padding_of_any_value_has_no_pad_value() -> None:
    rewrite = LayoutRewrite.between(row_major(), blocked(4).with_fill(UNDEF))
    assert rewrite is not None
    (call,) = write_relax(rewrite, "float32")
    assert call.attrs.pad_value is None
    assert read_relax([call]) == rewrite
    end = LayoutRewrite.make(IndexMap.identity((6, 5)), pad=((0, 2), (0, 3)), fill=UNDEF)
    assert read_relax(write_relax(end, "float32")) == end


def test_any_op_that_is_a_rewrite_is_read() -> None:
    x = relax.Var("x", relax.TensorType((2, 1, 6), "float32"))
    normalize = relax.BlockBuilder().normalize
    assert read_relax([normalize(relax.op.squeeze(x, [1]))]) is not None
    assert read_relax([normalize(relax.op.flatten(x))]) is not None
    assert read_relax([normalize(relax.op.flip(x, 2))]) is None
    assert read_relax([normalize(relax.op.nn.relu(x))]) is None


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8"])
def test_they_run(dtype: str) -> None:
    for before, after in [(row_major(), blocked(4)), (blocked(4), blocked(16))]:
        rewrite = LayoutRewrite.between(before, after.with_fill(3.0))
        assert rewrite is not None
        source = (numbered(rewrite.shape) % 100).astype(dtype)
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType(rewrite.shape, dtype))
        with builder.function("main", [x]):
            value = x
            for call in write_relax(rewrite, dtype):
                value = builder.emit(Template(call).over([value]))
            builder.emit_func_output(value)
        (result,) = stock_results(builder.finalize(), source)
        np.testing.assert_array_equal(result, rewrite.apply(source))
