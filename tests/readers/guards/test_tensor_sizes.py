"""What a file says of its tensors is judged once for each type."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import relax

from eqsat_layout.readers.guards import tensor_sizes


def test_a_tuple_whose_parts_are_all_used_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it was for each part that is used: ONNX's Split of 1000 results took 15 s to read."""
    parts = 100
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((parts, 2), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            split = builder.emit(relax.op.split(x, parts, 0))
            sums = [relax.op.negative(builder.emit(relax.TupleGetItem(split, place))) for place in range(parts)]
            result = builder.emit_output(relax.op.concat([builder.emit(one) for one in sums], 0))
        builder.emit_func_output(result)
    judged: list[Any] = []
    monkeypatch.setattr(tensor_sizes, "check_extents", lambda *given: judged.append(given))
    tensor_sizes.check_tensors(builder.get())
    assert parts < len(judged) < 10 * parts
