"""Calls read what a broadcast was made of, where that gives the same numbers bit for bit; other calls keep it."""

from __future__ import annotations

import numpy as np
import pytest
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from eqsat_layout.passes.broadcasts import skip_broadcasts
from eqsat_layout.targets.lowering import prepared

op = relax.op


def text_of(mod):
    return mod["main"].script(show_meta=False)


def test_a_product_with_weights_repeated_for_every_batch_is_one_product(make_module, unscheduled, arrays):
    """ViT of eight images spent three quarters of its time on these: torch.export writes linear layers so."""
    shapes = ((5, 8, 16), (16, 12))
    mod = make_module(lambda emit, x, w: emit(op.matmul(x, emit(op.broadcast_to(w, (5, 16, 12))))), *shapes)
    skipped = skip_broadcasts(mod)
    assert "broadcast_to" not in text_of(skipped)
    assert "R.matmul(x0, x1" in text_of(skipped)
    np.testing.assert_array_equal(unscheduled(skipped, *arrays(*shapes)), unscheduled(mod, *arrays(*shapes)))
    assert text_of(prepared(mod)) == text_of(prepared(skipped))
    assert "broadcast_to" in text_of(mod)


def test_broadcasts_of_broadcasts_are_skipped_too(make_module, unscheduled, arrays):
    def body(emit, x, b):
        return emit(op.add(x, emit(op.broadcast_to(emit(op.broadcast_to(b, (1, 3, 4))), (2, 3, 4)))))

    mod = make_module(body, (2, 3, 4), (4,))
    skipped = skip_broadcasts(mod)
    assert "R.add(x0, x1)" in text_of(skipped)
    given_arrays = arrays((2, 3, 4), (4,))
    np.testing.assert_array_equal(unscheduled(skipped, *given_arrays), unscheduled(mod, *given_arrays))


def summed(emit, x, b):
    return emit(op.add(x, emit(op.sum(emit(op.broadcast_to(b, (3, 4))), axis=[0]))))


def repeated(emit, x, b):
    return emit(op.add(x, emit(op.repeat(b, 3, axis=0))))


def widened_by_more_than_a_copy(emit, x, b):
    return emit(op.add(x, emit(op.nn.pad(b, (0, 3), pad_value=1.0))))


def multiplied_with_rows(emit, x, b):
    return emit(op.matmul(emit(op.broadcast_to(b, (4, 4))), emit(op.broadcast_to(x, (4,)))))


@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        (summed, ((4,), (4,))),
        (repeated, ((12,), (4,))),
        (widened_by_more_than_a_copy, ((4,), (1,))),
        (multiplied_with_rows, ((1,), (4,))),
    ],
)
def test_what_does_something_else_without_its_broadcast_keeps_it(make_module, body, shapes):
    mod = make_module(body, *shapes)
    assert skip_broadcasts(mod) is mod


def test_what_only_a_dataflow_block_sees_is_not_read_outside_of_it():
    """The product is outside of the block in which its operand was made and repeated."""
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", relax.TensorType((5, 8, 4), "float32")), relax.Var("w", relax.TensorType((4, 6), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            wide = builder.emit_output(op.broadcast_to(builder.emit(op.exp(w)), (5, 4, 6)))
        builder.emit_func_output(builder.emit(op.matmul(x, wide)))
    mod = builder.get()
    assert skip_broadcasts(mod) is mod


def test_a_broadcast_that_is_a_result_stays(make_module):
    mod = make_module(lambda emit, x: emit(op.broadcast_to(x, (3, 4))), (4,))
    assert skip_broadcasts(mod) is mod


BINARY = [op.add, op.multiply, op.subtract, op.maximum, op.divide, op.power, op.matmul]


@settings(max_examples=tries(30), deadline=None)
@given(
    call=st.sampled_from(BINARY),
    wide=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    rank=st.integers(1, 4),
    units=st.sets(st.integers(0, 3)),
    is_left=st.booleans(),
)
def test_results_are_the_same_bit_for_bit(make_module, unscheduled, arrays, call, wide, rank, units, is_left):
    size = 4 if call is op.matmul else None
    shape = [*wide[:-2], size or wide[-2], size or wide[-1]]
    small = [1 if i in units else extent for i, extent in enumerate(shape[-rank:])]

    def body(emit, x, b):
        b = emit(op.broadcast_to(b, shape))
        return emit(call(b, x) if is_left else call(x, b))

    mod = make_module(body, shape, small)
    skipped = skip_broadcasts(mod)
    if call is not op.matmul:
        assert "broadcast_to" not in text_of(skipped) or np.prod(small) == np.prod(shape)
    numbers = [np.abs(array) + 1 for array in arrays(shape, small)]
    np.testing.assert_array_equal(unscheduled(skipped, *numbers), unscheduled(mod, *numbers))
