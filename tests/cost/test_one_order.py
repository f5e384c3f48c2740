"""Kernels whose tensors all lie in one layout go through memory in its order: what they cost is worked out once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from programs import program
from tvm import tirx
from tvm.relax import op

from eqsat_layout.cost.model import Roofline
from eqsat_layout.graph.importer import import_module
from eqsat_layout.maps import Format, IndexMap


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("shape", [(2, 32, 7, 9), (1, 16, 1, 5), ("n", 8, 3)])
@pytest.mark.parametrize("build", [op.nn.relu, op.negative, lambda x: op.add(x, x), lambda x: op.astype(x, "int32")])
def test_they_cost_the_same_in_all_layouts(build: Any, shape: tuple[Any, ...], dtype: str) -> None:
    sizes = [tirx.Var(e, "int64") if isinstance(e, str) else e for e in shape]
    module = program(lambda builder, x: builder.emit(build(x)), sizes, dtype=dtype)
    (signature,) = import_module(module).signatures.values()
    rank = len(shape)
    maps = [IndexMap.permutation(shape, [*range(1, rank), 0]), IndexMap.permutation(shape, [*range(rank)][::-1])]
    whole = [[(axis, 1, extent)] for axis, extent in enumerate(shape)]
    whole[1] = [(1, 4, shape[1] // 4)]
    maps.append(IndexMap.make(shape, [*whole, [(1, 1, 4)]]))
    for prices in (Roofline(), replace(Roofline(), phase=1e-9, vector_bytes=64, word=4, tile_row=64)):
        for fmt in map(Format.make, maps):
            formats = [fmt] * len(signature.operands), [fmt]
            assert prices._parts(signature, *formats) == prices._new_parts(signature, *formats)


def test_a_broadcast_operand_is_in_another_order() -> None:
    """An addend of one row is met as often as there are rows: that is another question."""
    module = program(lambda b, x, y: b.emit(op.add(x, y)), (4, 8), (1, 8))
    (signature,) = import_module(module).signatures.values()
    turned = Format.make(IndexMap.permutation((4, 8), [1, 0]))
    row = Format.make(IndexMap.permutation((1, 8), [1, 0]))
    prices = Roofline()
    assert prices._parts(signature, [turned, row], [turned]) == prices._new_parts(signature, [turned, row], [turned])
