"""PrimFuncs that no device's kernels understand, with reductions over as many elements as are known at run time only.

They begin with 7, also over nothing.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from programs import program
from targets.devices import Device, each_device
from tvm import relax

import eqsat_layout

_MODULE: Final = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def sums(x: T.handle, y: T.handle):
        n = T.int64()
        A = T.match_buffer(x, (3, n), "float32")
        B = T.match_buffer(y, (3,), "float32")
        {}
    @R.function
    def main(x: R.Tensor((3, "n"), "float32")):
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.sums, (x,), out_ty=R.Tensor((3,), "float32"))
            R.output(a)
        return a
"""

_BODIES: Final = {
    "a branch": """for i, k in T.grid(3, n):
            with T.sblock("b"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk], B[vi])
                T.writes(B[vi])
                with T.init():
                    B[vi] = T.float32(7)
                if A[vi, vk] > T.float32(0):
                    B[vi] = B[vi] + A[vi, vk]""",
    "a condition": """for i, k0, k1 in T.grid(3, (n + T.int64(3)) // T.int64(4), T.int64(4)):
            with T.sblock("b"):
                vi = T.axis.spatial(3, i)
                vk = T.axis.reduce(n, k0 * T.int64(4) + k1)
                T.where(k0 * T.int64(4) + k1 < n)
                with T.init():
                    B[vi] = T.float32(7)
                B[vi] = B[vi] + T.max(A[vi, vk], T.float32(0))""",
    "a block in a block": """for i in range(3):
            with T.sblock("outer"):
                vi = T.axis.spatial(3, i)
                for k in range(n):
                    with T.sblock("b"):
                        vk = T.axis.reduce(n, k)
                        with T.init():
                            B[vi] = T.float32(7)
                        B[vi] = B[vi] + T.max(A[vi, vk], T.float32(0))""",
}


@each_device
@pytest.mark.parametrize("body", _BODIES)
def test_a_kernel_of_one_work_item_begins_over_nothing(device: Device, body: str) -> None:
    """Memory that nobody wrote came back. Of none, 5 and 6."""
    mod = tvm.script.from_source(_MODULE.format(_BODIES[body]))
    for count in (0, 5, 6):
        x = np.random.default_rng(count).standard_normal((3, count)).astype("float32")
        (result,) = device.run(mod, (x,))
        np.testing.assert_allclose(result, 7 + np.maximum(x, 0).sum(axis=1), rtol=1e-5)


_SINGLE: Final = {
    "a sum": "B[vi] = B[vi] + A[vi, T.int64(1)]",
    "a branch": """if A[vi, 1] > T.float32(0):
                    B[vi] = B[vi] + A[vi, 1]""",
}


@pytest.mark.parametrize("step", _SINGLE)
def test_a_reduction_over_no_axes_begins_each_time(step: str) -> None:
    """``R.sum(x, axis=[])`` is such a kernel: on CPUs it was added to what lay in the memory of the result."""
    body = f"""for i in range(3):
            with T.sblock("b"):
                vi = T.axis.spatial(3, i)
                with T.init():
                    B[vi] = T.float32(7)
                {_SINGLE[step]}"""
    x = np.array([[0, 2], [0, -3], [0, 5]], "float32")
    wanted = np.where(x[:, 1] > 0, 7 + x[:, 1], 7 if step == "a branch" else 4)
    assert_each_run_gives(tvm.script.from_source(_MODULE.format(body)), x, wanted)


def test_a_sum_over_no_axes() -> None:
    """As above: the second of two runs gave twice the first."""
    x = np.arange(120, dtype="float32").reshape(2, 3, 4, 5)
    assert_each_run_gives(program(lambda b, x: b.emit(relax.op.sum(x, axis=[])), x.shape), x, x)


def assert_each_run_gives(mod: Any, x: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> None:
    """Also where memory held something."""
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
    for _ in range(3):
        np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(x)).numpy(), wanted)
