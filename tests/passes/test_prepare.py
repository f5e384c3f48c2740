"""Preparation for inference keeps what the rest of the build needs."""

from __future__ import annotations

import numpy as np
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import eqsat_layout


@I.ir_module
class Branches:
    @R.function
    def main(
        state: R.Tensor(("N",), "float32"), a: R.Tensor(("M", 3), "float32"), b: R.Tensor(("M", 5), "float32")
    ) -> R.Tensor(("M",), "float32"):
        M, N = T.int64(), T.int64()
        if N == 3:
            c = R.add(a, a)
            d = R.match_cast(c, R.Tensor((M, N), "float32"))
            weights = R.add(d, d)
        else:
            c = R.add(b, b)
            d = R.match_cast(c, R.Tensor((M, N), "float32"))
            weights = R.add(d, d)
        return R.matmul(R.add(weights, weights), state)


def test_shapes_of_values_that_branches_give_are_kept() -> None:
    """TVM's test_match_cast_may_have_distinct_values_in_branches: ops were left that nothing legalises."""
    machine = tvm.relax.VirtualMachine(eqsat_layout.compile(Branches), tvm.cpu())
    rng = np.random.default_rng(0)
    for n in (3, 5):
        state, a, b = (rng.standard_normal(shape).astype("float32") for shape in ((n,), (2, 3), (2, 5)))
        result = machine["main"](*map(tvm.runtime.tensor, (state, a, b))).numpy()
        np.testing.assert_allclose(result, 8 * (a if n == 3 else b) @ state, rtol=1e-5)
