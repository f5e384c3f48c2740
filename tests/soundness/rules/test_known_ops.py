"""What calls are imported as: once in a process, and many at once."""

from __future__ import annotations

import time

import pytest
from tvm.relax import op as R

from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.importer import import_module
from eqsat_layout.soundness.rules import known_ops as ops
from eqsat_layout.soundness.rules.schema import OpCall

PAIR = TensorType((2, 3), "float32")


def softmax(said: str, axis: int) -> OpCall:
    return OpCall("relax.nn.softmax", lambda x: R.nn.softmax(x, axis=axis), (PAIR,), said)


def test_a_call_is_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every vocabulary imported the calls of all others again, and those that had been tried one by one."""
    imported: list[object] = []
    monkeypatch.setattr(ops, "import_module", lambda mod: imported.append(mod) or import_module(mod))
    ops.imports.cache_clear()
    calls = [softmax("axis=0", 0), softmax("axis=1", 1)]
    ops.import_together(calls)
    assert [ops.unusable(call) for call in calls] == ["", ""]
    assert len(ops.known_ops(calls, {"relax.nn.softmax"}).signatures) == 2
    assert len(imported) == 1


def test_calls_that_are_written_differently_and_do_the_same_are_one_op() -> None:
    first, second = softmax("axis=1", 1), softmax("the last axis", 1)
    found = ops.known_ops([first, second])
    assert len(found.signatures) == 1
    assert found.attributes[first] == found.attributes[second]


def test_ops_of_other_vocabularies_have_keys_of_their_own_here() -> None:
    found = ops.known_ops([softmax("axis=0", 0)])
    again = ops.known_ops([softmax("axis=1", 1), softmax("axis=0", 0)])
    assert set(found.signatures) < set(again.signatures) == set(again.interpreters)
    assert all(signature.key == key for key, signature in again.signatures.items())


def test_what_is_a_view_only_where_sizes_are_known_is_an_op_too() -> None:
    """In models every second of an even number of elements was a view only, though not in programs of any number: of a
    rule about slices the half that is right was judged, and it was applied to all."""
    steps = OpCall("relax.strided_slice", lambda x: R.strided_slice(x, [0], [0], [99], [2]), (PAIR,), "every second")
    turned = OpCall("relax.permute_dims", lambda x: R.permute_dims(x), (PAIR,), "turned")
    found = ops.known_ops([steps, turned], {"relax.strided_slice", "relax.permute_dims"})
    assert [signature.name for signature in found.signatures.values()] == ["relax.strided_slice"]
    assert ops.unusable(turned) == ops.IS_PART
    assert not ops.known_ops([steps]).signatures


def test_a_sort_of_an_axis_that_there_is_not_is_no_op_that_runs() -> None:
    """TVM types it, and its library writes beside the array: the process that fuzzed a rule about sorts died."""
    ty = TensorType((1,), "float32")
    for name, function in {"relax.sort": R.sort, "relax.argsort": R.argsort}.items():
        call = OpCall(name, lambda x, function=function: function(x, axis=-2), (ty,), "axis=-2")
        assert "of axis -2 of 1" in ops.unusable(call)


def test_an_op_of_a_vast_buffer_is_not_run() -> None:
    """Attention along the longest axis has four million scores: of each it was worked out where it goes, 75 s for a
    rule on masks."""
    ty = TensorType((1, 2112, 1, 1), "float16")
    call = OpCall("relax.nn.attention", lambda q, k, v: R.nn.attention(q, k, v), (ty, ty, ty), "long")
    start = time.process_time()
    assert "takes too long" in ops.unusable(call)
    assert time.process_time() - start < 2


def test_what_stores_out_of_bounds_is_not_built() -> None:
    """TVM's kernel for running sums writes the first of none: the reference interpreter refuses it, and then it was
    built, and the process that fuzzed a rule about sums died."""
    ty = TensorType((0, 3, 3), "int32")
    call = OpCall("relax.cumsum", lambda x: R.cumsum(x, axis=0, exclusive=True), (ty,), "of none")
    assert "stores outside" in ops.unusable(call)
