"""Products of float32 by one product of TF32, on request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import program
from targets.cuda.simulating import compiled
from tvm import relax
from tvm.relax import op

from eqsat_layout.errors import TargetError
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.targets.registry import target

CUT = {"kind": "cuda", "arch": "sm_80", "tensorfloat32": True}
WEIGHT = np.random.default_rng(0).standard_normal((96, 40)).astype("float32")


def product(builder: Any, x: Any) -> Any:
    return builder.emit(op.matmul(x, relax.const(WEIGHT)))


@pytest.mark.parametrize(("options", "least", "most"), [({}, 1e-5, 1e-3), ({"approx": False}, 0.0, 1e-6)])
def test_products_are_cut_where_that_is_asked_for_and_need_not_be_exact(
    options: dict[str, Any], least: float, most: float
) -> None:
    mod = program(product, (33, 96))
    x = np.random.default_rng(1).standard_normal((33, 96)).astype("float32")
    expected = x.astype("float64") @ WEIGHT.astype("float64")
    program_of_cut = compiled(mod, CUT, **options)
    got = simulated(program_of_cut, 2)(x)
    error = np.linalg.norm(got - expected) / np.linalg.norm(expected)
    assert least <= error <= most
    (source,) = program_of_cut.sources.values()
    assert ("mma.sync" in source) is not bool(options)


def test_the_planner_knows_that_they_are_faster() -> None:
    whole, cut = (target({**CUT, "tensorfloat32": said}) for said in (False, True))
    assert whole.machine.of_floats == "float32"
    assert cut.machine.of_floats == "tensorfloat32"
    assert cut.with_approx(False).machine.of_floats == "tensorfloat32"
    assert whole.name != cut.name, "measurements of one would be taken for the other's"


def test_it_is_said_or_not() -> None:
    with pytest.raises(TargetError, match="'tensorfloat32' of a CUDA target is true or false, not 'yes'"):
        target({**CUT, "tensorfloat32": "yes"})
