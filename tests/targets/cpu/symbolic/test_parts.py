"""Kernels of symbolic sizes, done in parts, give what they give unscheduled, for few elements and many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from targets.machines import AVX512, built
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.targets.cpu.schedule import schedule_module, schedule_primfunc
from eqsat_layout.targets.cpu.symbolic.kernel import has_symbols, kernel_in_parts
from eqsat_layout.targets.cpu.target import make_target
from eqsat_layout.targets.schedules.attempts import unless_refused

SIZES = ((1, 1), (1, 7), (3, 15), (2, 16), (1, 17), (2, 33), (1, 64), (3, 43), (1, 100))

B, N = "b", "n"
Body = Callable[..., Any]


def weights(*shape: int) -> Any:
    return relax.const(np.random.default_rng(7).normal(size=shape).astype("float32"))


def gated(x: Any) -> Any:
    """A value that a kernel holds in two buffers of one shape: a block that reads both was said to read one."""
    x = relax.BlockBuilder.current().emit(x)
    return op.multiply(x, relax.BlockBuilder.current().emit(op.sigmoid(x)))


CASES: dict[str, tuple[list[tuple[Any, ...]], Body]] = {
    "rows": ([(B, N, 24)], lambda x: op.nn.relu(op.matmul(x, weights(24, 40)))),
    "columns": ([(B, 2, N, 8), (B, 2, 8, N)], lambda q, k: op.multiply(op.matmul(q, k), weights(1))),
    "steps": ([(B, 2, N, N), (B, 2, N, 8)], lambda p, v: op.matmul(p, v)),
    "softmax": ([(B, 2, N, N)], lambda x: op.nn.softmax(x)),
    "rows of a norm": ([(B, N, 24)], lambda x: op.nn.layer_norm(x, weights(24), weights(24), axes=[-1])),
    "images": ([(B, 3, 9, 9)], lambda x: op.nn.conv2d(x, weights(16, 3, 3, 3), padding=1)),
    "gated images": (
        [(B, 32, 10, 10)],
        lambda x: gated(op.nn.conv2d(x, weights(32, 1, 3, 3), padding=1, groups=32)),
    ),
    "elements": ([(B, N)], lambda x: op.exp(x)),
    "a mask": ([(B, 1, N, N)], lambda x: op.tril(x)),
    "sums": ([(B, N, 5)], lambda x: op.sum(x, axis=[0])),
    "images of pixels": ([(2, B, N, 8)], lambda x: op.nn.relu(op.permute_dims(x, [0, 3, 1, 2]))),
    "swapped": ([(B, N, 6)], lambda x: op.permute_dims(x, [2, 1, 0])),
}


def kernels(name: str) -> Any:
    """The module of a case, its kernels not scheduled."""
    shapes, body = CASES[name]
    symbols = {key: tirx.Var(key, "int64") for key in (B, N)}
    types = [relax.TensorType([symbols.get(e, e) for e in shape], "float32") for shape in shapes]
    params = [relax.Var(f"x{number}", ty) for number, ty in enumerate(types)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body(*params)))
        builder.emit_func_output(out)
    return fuse(relax.transform.LegalizeOps()(builder.get()), Notes())


def machine(name: str, cores: int | None) -> Any:
    """A virtual machine: of the kernels as they are, or scheduled for so many cores."""
    mod = kernels(name)
    if cores is not None:
        mod = schedule_module(mod, make_target({"kind": "llvm", "num-cores": cores}, approx=True).machine)
    return relax.VirtualMachine(built(mod), tvm.cpu())


@pytest.mark.parametrize("name", CASES)
def test_some_kernel_is_done_in_parts(name: str) -> None:
    functions = [func for func in kernels(name).functions.values() if isinstance(func, tirx.PrimFunc)]
    symbolic = [func for func in functions if has_symbols(func)]
    assert any(unless_refused(lambda f=func: kernel_in_parts(f, AVX512, schedule_primfunc)) for func in symbolic)


@pytest.mark.parametrize("name", CASES)
def test_parts_give_what_the_whole_gives(name: str) -> None:
    random = np.random.default_rng(3)
    whole, *parts = (machine(name, cores) for cores in (None, 1, 2))
    for b, n in SIZES:
        sizes = {B: b, N: n}
        arrays = [random.normal(size=[sizes.get(e, e) for e in shape]).astype("float32") for shape in CASES[name][0]]
        plain, *found = (one["main"](*map(tvm.runtime.tensor, arrays)).numpy() for one in (whole, *parts))
        for cores, got in enumerate(found, 1):
            np.testing.assert_allclose(got, plain, rtol=1e-4, atol=1e-5, err_msg=f"{name} of {sizes} on {cores} cores")


@I.ir_module
class OfShortSizes:
    @T.prim_func(private=True, s_tir=True)
    def doubled(a: T.handle, b: T.handle):
        m, n = T.int32(), T.int32()
        A = T.match_buffer(a, (m, n), "float32")
        B = T.match_buffer(b, (m, n), "float32")
        for i, j in T.grid(m, n):
            with T.sblock("doubled"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("m", "n"), "float32")):
        m, n = T.int64(), T.int64()
        return R.call_tir(OfShortSizes.doubled, (x,), out_ty=R.Tensor((m, n), "float32"))


def test_the_sizes_of_a_kernel_may_be_of_32_bits() -> None:
    """Loops over its parts count in 64: it had no schedule (TVM's TestVMSetInput)."""
    notes, x = Notes(), np.arange(51.0, dtype="float32").reshape(3, 17)
    mod = schedule_module(OfShortSizes, make_target({"kind": "llvm", "num-cores": 1}, approx=True).machine, notes)
    assert not list(notes)
    doubled = relax.VirtualMachine(built(mod), tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(doubled.numpy(), 2 * x)
