"""Programs that the program fuzzer found: one test per bug."""

from __future__ import annotations

from typing import Any

from compare import assert_same_fast, assert_same_interface
from programs import constant, program
from tvm import relax
from tvm.relax import op as R

import eqsat_layout


def test_a_view_of_an_empty_tensor_is_written() -> None:
    """Relax's reshape takes a 0 for "as it was": the rewrite of (0, 1, 1) to (1, 0, 1) raised."""

    def body(bb: Any, x: Any) -> Any:
        bb.emit(R.negative(bb.emit(R.nn.relu(x))))
        return bb.emit(R.permute_dims(x, [2, 0, 1]))

    mod = program(body, (0, 1, 1))  # TVM can't build it, before or after: its own passes trip over the 0
    assert_same_interface(mod, eqsat_layout.optimize(mod, candidates=False))


def test_an_empty_tensor_gets_no_layout_of_its_own() -> None:
    """Its copy from (0, 8) to (8, 1, 1, 0), which cost nothing, is what TVM can't build: it could build the input."""

    def body(bb: Any, x: Any) -> Any:
        some = bb.emit(R.add(bb.emit(R.abs(constant(2, 1, 1, 1))), relax.const(0.5, "float32")))
        bb.emit(R.divide(bb.emit(R.abs(x)), some))
        return bb.emit(R.nn.relu(bb.emit(R.permute_dims(x, axes=[1, 0]))))

    mod = program(body, (0, 8))
    assert_same_fast(mod, eqsat_layout.optimize(mod, candidates=False, approx=False))


def test_a_tensor_with_many_formats_does_not_stop_the_extraction() -> None:
    """The ways to supply one demand were all compared with each other: minutes for six ops."""

    def body(bb: Any, x: Any) -> Any:
        both = bb.emit(R.concat((x, x), 4))
        chosen = bb.emit(R.where(bb.emit(R.equal(both, both)), both, both))
        padded = bb.emit(R.nn.pad(chosen, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0], pad_value=1.5))
        return bb.emit(R.add(bb.emit(R.reshape(padded, (18, 16))), padded))

    mod = program(body, (2, 2, 3, 1, 8))
    plan = eqsat_layout.plan(mod, candidates=False)
    assert plan.gap < 0.1
    assert_same_fast(mod, plan.module)
