"""What TVM itself tests, and was compiled wrongly once or not at all: ``approx=False`` gives what stock TVM gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from compare import machine, stock_results
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.validation.inputs import arrays_in

RANDOM = np.random.default_rng(0)
SCORES = RANDOM.integers(-4, 5, (3, 5, 4)).astype("float32")
CLASSES = RANDOM.integers(0, 5, (3, 4))
WEIGHTS = np.array([1, 2, 4, 1, 2], "float32")


def compiled(mod: Any) -> Any:
    return relax.VirtualMachine(eqsat_layout.compile(mod, approx=False), tvm.cpu())["main"]


def assert_as_stock(mod: Any, *inputs: Any) -> None:
    """Bit for bit; inputs are such that nothing is rounded."""
    got = arrays_in(compiled(mod)(*map(tvm.runtime.tensor, inputs)))
    for a, b in zip(stock_results(mod, *inputs), got, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def of_inputs(body: Callable[..., Any], *inputs: Any) -> Any:
    """A module whose main gives ``body(emit, *params)``, for such inputs."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(x.shape, str(x.dtype))) for i, x in enumerate(inputs)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(body(builder.emit, *params))
        builder.emit_func_output(output)
    return builder.finalize()


@pytest.mark.parametrize("ignored", [-100, 1])
@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_losses_of_classes(reduction: str, ignored: int) -> None:
    inputs = (SCORES, CLASSES, WEIGHTS)
    loss = of_inputs(lambda _, *a: op.nn.nll_loss(*a, reduction=reduction, ignore_index=ignored), *inputs)
    assert_as_stock(loss, *inputs)


def test_the_gradient_of_a_loss() -> None:
    inputs = (np.array(2, "float32"), SCORES, CLASSES, WEIGHTS)
    gradient = of_inputs(lambda _, *a: op.grad.nll_loss_backward(*a, reduction="sum", ignore_index=1), *inputs)
    assert_as_stock(gradient, *inputs)


@pytest.mark.parametrize(("sigma", "is_compact"), [(0.0, True), (0.5, False)])
def test_boxes_of_several_images(sigma: float, is_compact: bool) -> None:
    """One process died."""
    boxes = RANDOM.integers(0, 20, (2, 12, 6)).astype("float32")
    boxes[..., 4:] += boxes[..., 2:4] + 1
    boxes[..., 0] = RANDOM.integers(-1, 2, (2, 12))
    boxes[..., 1] = RANDOM.permutation(24).reshape(2, 12) / 32
    inputs = (boxes, np.array([12, 7], "int32"), np.tile(np.arange(12, dtype="int32"), (2, 1)))
    mod = of_inputs(
        lambda _, *a: op.vision.non_max_suppression(
            *a, iou_threshold=0.3, return_indices=False, invalid_to_bottom=is_compact, soft_nms_sigma=sigma
        ),
        *inputs,
    )
    assert_as_stock(mod, *inputs)


@I.ir_module
class Calls:
    """Functions that call others, of which one is called from two."""

    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        y = Calls.turned(x)
        z = Calls.squared(y)
        return z

    @R.function(private=True)
    def turned(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        a = R.permute_dims(x, [1, 0])
        y = Calls.squared(a)
        return y

    @R.function(private=True)
    def squared(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        y = Calls.product(x, x)
        z = R.permute_dims(y, [1, 0])
        return z

    @R.function(private=True)
    def product(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        y = R.matmul(x, w)
        return y


def test_functions_that_call_each_other() -> None:
    assert_as_stock(Calls, RANDOM.integers(-2, 3, (4, 4)).astype("float32"))


@I.ir_module
class Storage:
    """A kernel writes into memory that the program asked for, twice into the same."""

    @T.prim_func(private=True, s_tir=True)
    def twice(a: T.Buffer((T.int64(4), T.int64(4)), "float32"), b: T.Buffer((T.int64(4), T.int64(4)), "float32")):
        for i, j in T.grid(T.int64(4), T.int64(4)):
            with T.sblock("twice"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] * T.float32(2)

    @R.function(pure=False)
    def main(x: R.Tensor((4, 4), "float32")):
        storage = R.memory.alloc_storage(R.shape([64]), virtual_device_index=0, storage_scope="global", dtype="float32")
        first = R.memory.alloc_tensor(storage, offset=0, shape=R.shape([4, 4]), dtype="float32")
        _ = Storage.twice(x, first)
        y = R.permute_dims(first, [1, 0])
        _1 = Storage.twice(y, first)
        z = R.add(first, y)
        return z


def test_a_kernel_that_writes_into_allocated_storage() -> None:
    assert_as_stock(Storage, RANDOM.integers(-2, 3, (4, 4)).astype("float32"))


@I.ir_module
class Draws:
    """Calls that are not pure around pure ones; nobody reads the third."""

    @R.function(pure=False)
    def main(x: R.Tensor((2, 3), "float32")):
        a = R.call_packed("eqsat_layout_test.draw", x, ty_args=R.Tensor((2, 3), "float32"))
        with R.dataflow():
            b = R.permute_dims(a, [1, 0])
            c = R.add(b, b)
            R.output(c)
        d = R.call_packed("eqsat_layout_test.draw", x, ty_args=R.Tensor((2, 3), "float32"))
        unread = R.call_packed("eqsat_layout_test.draw", x, ty_args=R.Tensor((2, 3), "float32"))  # noqa: F841
        e = R.call_packed("eqsat_layout_test.draw", c, ty_args=R.Tensor((3, 2), "float32"))
        f = R.permute_dims(e, [1, 0])
        g = R.subtract(d, f)
        return g


def test_random_numbers_are_drawn_in_their_order() -> None:
    drawn: list[tuple[int, ...]] = []

    @tvm.register_global_func("eqsat_layout_test.draw", override=True)
    def draw(x: Any) -> Any:
        drawn.append(tuple(x.shape))
        return tvm.runtime.tensor(x.numpy() + np.float32(len(drawn)))

    x = tvm.runtime.tensor(RANDOM.integers(-2, 3, (2, 3)).astype("float32"))
    expected = machine(Draws)["main"](x).numpy()
    order = list(drawn)
    drawn.clear()
    np.testing.assert_array_equal(compiled(Draws)(x).numpy(), expected)
    assert drawn == order == [(2, 3), (2, 3), (2, 3), (3, 2)]


def test_attention_of_parts_of_one_tensor() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        parts = emit(op.split(x, 3, axis=2))
        heads = [emit(relax.TupleGetItem(parts, i)) for i in range(3)]
        return op.nn.attention(*(emit(op.reshape(head, (2, 8, 2, 6))) for head in heads))

    x = RANDOM.standard_normal((2, 8, 36)).astype("float32")
    mod = of_inputs(body, x)
    got = compiled(mod)(tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(got, stock_results(mod, x)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_sums_and_products_of_truth_values_are_built(size: int) -> None:
    """TVM's code generator takes them for floats, and builds those alone that are simplified before (found by the
    program fuzzer)."""
    x, y = (relax.Var(name, relax.TensorType((size,), "bool")) for name in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            found = [builder.emit(relax.op.add(x, y)), builder.emit(relax.op.multiply(x, y))]
            result = builder.emit_output(relax.Tuple(found))
        builder.emit_func_output(result)
    a, b = np.arange(size) % 2 == 0, np.arange(size) % 3 == 0
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.get(), "llvm"), tvm.cpu())
    got = [one.numpy() for one in machine["main"](*map(tvm.runtime.tensor, (a, b)))]
    np.testing.assert_array_equal(got, [a | b, a & b])
