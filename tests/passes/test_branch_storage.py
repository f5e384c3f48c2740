"""Memory that TVM's planner gives from one branch to another: the process ended where the first was not taken."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tvm
from tvm import relax

import eqsat_layout

_BRANCHES = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")):
        if c:
            y = R.nn.relu(x)
            z = R.matmul(y, x)
        else:
            if d:
                t = R.permute_dims(x, [1, 0])
                u = R.matmul(t, x)
            else:
                t = R.negative(x)
                u = R.matmul(t, t)
            v = R.nn.relu(u)
            z = R.matmul(v, v)
        w = R.matmul(z, x)
        return R.add(w, z)
"""


@pytest.mark.parametrize("approx", [True, False])
def test_branches_do_not_wait_for_memory_of_others(approx: bool) -> None:
    machine = relax.VirtualMachine(eqsat_layout.compile(tvm.script.from_source(_BRANCHES), approx=approx), tvm.cpu())
    x = np.random.default_rng(0).integers(-3, 4, (4, 4)).astype("float32")
    for c, d in itertools.product((True, False), repeat=2):
        u = np.maximum(x.T @ x if d else x @ x, 0)
        z = np.maximum(x, 0) @ x if c else u @ u
        given = [tvm.runtime.tensor(np.array(one)) for one in (x, c, d)]
        np.testing.assert_array_equal(machine["main"](*given).numpy(), z @ x + z)
