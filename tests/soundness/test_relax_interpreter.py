"""The interpreter of Relax beside LLVM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from compare import flat, machine
from programs import constant, program
from tvm import relax
from tvm.relax import op as R
from tvm.script import ir as I
from tvm.script import relax as RS

from eqsat_layout.soundness.relax_interpreter import NotInterpretable, run_function


def assert_as_llvm(mod: Any, *shapes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    wanted = list(flat(machine(mod)["main"](*(tvm.runtime.tensor(x) for x in inputs))))
    found = run_function(mod, "main", inputs)
    for a, b in zip(found if isinstance(found, list) else [found], wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_block_of_ops() -> None:
    def body(bb: Any, x: Any) -> Any:
        y = bb.emit(R.nn.conv2d(x, constant(4, 3, 3, 3), padding=1))
        parts = bb.emit(R.split(bb.emit(R.nn.relu(y)), 2, axis=1))
        both = bb.emit(R.concat([relax.TupleGetItem(parts, 1), relax.TupleGetItem(parts, 0)], axis=1))
        return bb.emit(R.nn.softmax(both, axis=1)), bb.emit(R.mean(both, axis=[2, 3]))

    assert_as_llvm(program(body, (1, 3, 6, 6)), (1, 3, 6, 6))


@I.ir_module
class Calls:
    @RS.function(private=True)
    def twice(x: RS.Tensor(("n", 3), "float32")) -> RS.Tensor(("n", 3), "float32"):
        with RS.dataflow():
            y = RS.add(x, x)
            RS.output(y)
        return y

    @RS.function
    def main(x: RS.Tensor(("n", 3), "float32")):
        y = Calls.twice(x)
        z = RS.nn.relu(y)
        return z


def test_calls_and_symbolic_sizes() -> None:
    assert_as_llvm(Calls, (5, 3))


def test_an_op_that_is_no_tir_is_named() -> None:
    def body(bb: Any, x: Any) -> Any:
        return bb.emit(R.call_dps_packed("somebody.else", relax.Tuple([x]), relax.TensorType((2, 3), "float32")))

    with pytest.raises(NotInterpretable, match=r"relax\.call_dps_packed"):
        run_function(program(body, (2, 3)), "main", [np.zeros((2, 3), "float32")])
