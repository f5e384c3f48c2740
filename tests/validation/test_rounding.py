"""What rounding explains is no difference, and nothing else is let through with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from programs import constant, program
from tvm import relax
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.errors import ValidationError
from eqsat_layout.targets.registry import target
from eqsat_layout.validation import rounding
from eqsat_layout.validation.rounding import RoundingTrial
from eqsat_layout.validation.validate import check_equal

ROWS, STEPS = 8, 96
SCALES = np.array([1.0] * 6 + [1e-5] * 2, "float32").reshape(ROWS, 1)


def product(builder: Any, x: Any) -> Any:
    return builder.emit(R.matmul(x, builder.emit(R.permute_dims(x))))


def summed(builder: Any, x: Any, *, backwards: bool) -> Any:
    """The same product, its steps in this order or that."""
    x = builder.emit(R.flip(x, 1)) if backwards else x
    pairs = builder.emit(R.multiply(builder.emit(R.expand_dims(x, 1)), builder.emit(R.expand_dims(x, 0))))
    return builder.emit(R.sum(pairs, axis=[2]))


def remainder(change: Callable[[Any, Any], Any] = lambda _, value: value, *, backwards: bool = True) -> Any:
    """``x x^T - x x^T``, as one looks whether ``L L^T`` is ``A``; ``change``: of the second one."""

    def body(builder: Any, x: Any) -> Any:
        return R.subtract(product(builder, x), change(builder, summed(builder, x, backwards=backwards)))

    return program(body, (ROWS, STEPS))


def test_a_difference_of_values_that_are_nearly_equal_is_judged_by_these() -> None:
    """All that is left of them is rounding: 9e-5 beside a tolerance of 9e-8 was called a difference."""
    check_equal(remainder(backwards=False), remainder())


def test_it_is_so_for_what_the_optimiser_makes_of_a_product() -> None:
    def body(builder: Any, x: Any) -> Any:
        return R.subtract(product(builder, x), builder.emit(R.einsum((x, x), "ik,jk->ij")))

    eqsat_layout.optimize(program(body, (8, 200)), validate=True)


@pytest.mark.parametrize("share", [1.001, 0.0, -1.0])
def test_operands_of_a_difference_that_are_wrong_are_seen(share: float) -> None:
    def wrong(builder: Any, value: Any) -> Any:
        factors = np.ones((ROWS, 1), "float32")
        factors[3] = share
        return builder.emit(R.multiply(value, relax.const(factors)))

    with pytest.raises(ValidationError, match="result 0 differs by"):
        check_equal(remainder(), remainder(wrong))


def test_a_wrong_channel_of_small_numbers_is_seen_beside_a_difference_that_cancels() -> None:
    """``reach`` of the other channels is larger than all that it has."""

    def body(sign: float) -> Callable[..., Any]:
        signs = np.ones((ROWS, 1), "float32")
        signs[7] = sign

        def inner(builder: Any, x: Any) -> Any:
            y = builder.emit(R.multiply(builder.emit(R.multiply(x, relax.const(SCALES))), relax.const(signs)))
            away = builder.emit(R.subtract(builder.emit(R.add(y, relax.const(SCALES))), relax.const(SCALES)))
            return R.nn.relu(away)

        return inner

    with pytest.raises(ValidationError, match=r"result 0 differs by .* at \(7, "):
        check_equal(program(body(1.0), (ROWS, STEPS)), program(body(-1.0), (ROWS, STEPS)))


def test_rounding_reaches_no_further_in_a_channel_than_its_operands() -> None:
    mod = program(lambda b, x: R.multiply(b.emit(R.matmul(x, constant(STEPS, 32))), relax.const(SCALES)), (ROWS, STEPS))
    x = tvm.runtime.tensor(np.random.default_rng(0).standard_normal((ROWS, STEPS)).astype("float32"))
    own = target("llvm")
    expected = rounding.run(rounding.virtual_machine(mod, own), "main", [x])
    (reach,) = RoundingTrial(mod, own).reach("main", [x], expected)
    sizes = np.abs(expected[0]).max(axis=1)
    assert (reach.max(axis=1) < 1e-3 * sizes).all()
    assert (reach.min(axis=1) > 1e-7 * sizes).all()


def test_values_that_are_no_floats_and_functions_that_are_called_stay_as_they_are() -> None:
    builder = relax.BlockBuilder()
    y = relax.Var("y", relax.TensorType((4,), "int32"))
    with builder.function("helper", [y], private=True):
        builder.emit_func_output(builder.emit(R.add(y, relax.const(1, "int32"))))
    x = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 4), "float16"))
    with builder.function("main", [x]):
        helped = builder.emit(
            relax.Call(builder.get().get_global_var("helper"), [relax.const(np.arange(4, dtype="int32"))])
        )
        total = builder.emit(R.sum(x, axis=[0]))
        builder.emit_func_output(relax.Tuple([total, helped]))
    given = [tvm.runtime.tensor(np.ones((3, 4), "float16"))]
    results = [np.full(4, 3, "float16"), np.arange(1, 5, dtype="int32")]
    floats, integers = RoundingTrial(builder.finalize(), target("llvm")).reach("main", given, results)
    assert (floats > 0).all()
    assert not integers.any()


def test_where_it_can_not_be_tried_the_difference_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr(rounding, "with_moved_values", refused)
    with pytest.raises(ValidationError, match="result 0 differs by"):
        check_equal(remainder(backwards=False), remainder())
