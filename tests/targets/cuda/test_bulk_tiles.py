"""Products whose tiles come by tensor maps: in the simulator, as machine code, and in programs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from programs import constant
from targets.cuda.cases import Case, conv, matmul
from targets.cuda.running import (
    H100,
    Kernels,
    check_case,
    inputs_of,
    instructions,
    machine_code,
    needs_compiler,
    result_of,
)
from targets.cuda.simulating import check
from targets.cuda.test_products import TOLERANCES
from targets.cuda.test_warpgroups import plan_of
from tvm import relax, te, tirx
from tvm.relax import op

from bench.cuda.bundles.cases import cases, made
from eqsat_layout.errors import Refused
from eqsat_layout.soundness.cuda import KernelFault
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.targets.cuda.kernels.product_kernel import product_kernel
from eqsat_layout.targets.cuda.kernels.product_model import model_of, plans_for
from eqsat_layout.targets.cuda.kernels.products import product_of
from eqsat_layout.targets.gpu.host.plan import Allocation, Argument, HostFunction, HostPlan, Launch, TensorMap
from eqsat_layout.targets.gpu.host.plan_checks import check_plan
from eqsat_layout.targets.gpu.host.sizes import value_of
from eqsat_layout.targets.registry import target

GROUPING = replace(H100, warpgroups=True)

CASES = {
    "matrices": matmul(70, 40, 200, right="nk"),
    "a batch": matmul(33, 72, 104, batch=2, right="nk"),
    "pointwise": conv((9, 8), 24, 40, (1, 1), batch=2),
    "few steps": matmul(65, 24, 8, right="nk"),
}


def kernels_of(case: Case, dtype: str, **changes: Any) -> tuple[Any, Kernels]:
    func = case(dtype, "float32", dtype).with_attr("eqsat_layout.constants", ["b", "w"])  # launches overlap
    return func, Kernels(product_kernel(product_of(func), plan_of(dtype, in_bulk=True, **changes)), "sm_90a")


@pytest.mark.parametrize(
    ("name", "dtype", "changes"),
    [
        ("matrices", "float16", {}),
        ("matrices", "bfloat16", {"block_rows": 128, "stages": 3}),
        ("a batch", "float16", {"block_columns": 128, "warp_columns": 128}),
        ("pointwise", "bfloat16", {"splits": 2, "block_steps": 64}),
        ("few steps", "float16", {"stages": 6}),
    ],
)
def test_products(name: str, dtype: str, changes: dict[str, Any]) -> None:
    check_case(CASES[name], *kernels_of(CASES[name], dtype, **changes), TOLERANCES[dtype])


@pytest.mark.parametrize("name", ["matrices", "pointwise"])
def test_they_are_the_numbers_of_tiles_that_threads_copy(name: str) -> None:
    func, kernels = kernels_of(CASES[name], "float16")
    copied = Kernels(product_kernel(product_of(func), plan_of("float16")), "sm_90a")
    arrays = inputs_of(func)
    assert (result_of(kernels, arrays) == result_of(copied, arrays)).all()


def changed(kernels: Kernels, before: str, after: str) -> Kernels:
    ((name, source),) = kernels.sources.items()
    kernels.sources[name] = source.replace(before, after)
    assert kernels.sources[name] != source
    return kernels


def test_a_tile_that_is_not_waited_for_is_found() -> None:
    func, kernels = kernels_of(CASES["matrices"], "float16")
    with pytest.raises(KernelFault, match="before its bulk copy is waited for"):
        result_of(changed(kernels, "if (!((done_ptr[0] == (uint)0)))", "if (true)"), inputs_of(func))


def test_a_stage_that_is_asked_for_too_early_is_found() -> None:
    """Products are still read out of it: they were not waited for."""
    func, kernels = kernels_of(CASES["matrices"], "float16")
    wait = "wgmma.wait_group.sync.aligned {};"
    with pytest.raises(KernelFault, match="shared memory"):
        result_of(changed(kernels, wait.format(0), wait.format(1)), inputs_of(func))


def sliced(offset: int) -> Any:
    """Products of columns from ``offset`` on of a wider matrix."""
    a, b = (te.placeholder((256, 512), "float16", name=name) for name in "ab")
    k = te.reduce_axis((0, 256), "k")

    def total(i: Any, j: Any) -> Any:
        return te.sum(a[i, k + offset].astype("float32") * b[j, k].astype("float32"), axis=k)

    return te.create_prim_func([a, b, te.compute((256, 256), total, name="c")])


def overlapping() -> Any:
    """Products of windows of 64, eight apart."""
    a, b = te.placeholder((4096,), "float16", name="a"), te.placeholder((256, 64), "float16", name="b")
    k = te.reduce_axis((0, 64), "k")

    def total(i: Any, j: Any) -> Any:
        return te.sum(a[i * 8 + k].astype("float32") * b[j, k].astype("float32"), axis=k)

    return te.create_prim_func([a, b, te.compute((504, 256), total, name="c")])


@pytest.mark.parametrize(
    ("func", "is_taken"),
    [
        (matmul(1024, 1024, 1024, right="nk")("float16", "float32", "float16"), True),
        (conv((28, 28), 128, 512, (1, 1), batch=8)("bfloat16", "float32", "bfloat16"), True),
        (matmul(256, 256, 64, right="nk", batch=4)("float16", "float32", "float16"), True),
        (sliced(0), True),
        (sliced(64), False),
        (overlapping(), False),
        (matmul(1024, 1024, 1028, right="nk")("float16", "float32", "float16"), False),
        (matmul(1024, 1024, 1024, right="kn")("float16", "float32", "float16"), False),
        (conv((28, 28), 128, 512, (3, 3), pad=1, batch=8)("float16", "float32", "float16"), False),
        (conv((28, 28), 128, 512, (1, 1), stride=2, batch=8)("float16", "float32", "float16"), False),
        (matmul(1024, 1024, 1024, right="nk")("float32", "float32", "float32"), False),
    ],
    ids=[
        "matrices",
        "pointwise",
        "batch",
        "part",
        "later part",
        "overlapping",
        "odd rows",
        "across",
        "3x3",
        "strides",
        "floats",
    ],
)
def test_rows_at_even_distances_take_them(func: Any, is_taken: bool) -> None:
    product = product_of(func)
    assert plans_for(product, GROUPING)[0].in_bulk == is_taken
    assert not any(plan.in_bulk for plan in plans_for(product, H100))
    if not is_taken and str(func.params[0].ty.dtype) == "float16":
        with pytest.raises(Refused, match="no rows at even distances"):
            product_kernel(product, plan_of("float16", in_bulk=True))


def test_small_products_have_more_tiles_on_their_way() -> None:
    """They wait for memory: four stages took a tenth longer by the model, launch included."""
    product = product_of(conv((28, 28), 512, 128, (1, 1))("float16", "float32", "float16"))
    model = model_of(product, GROUPING)
    best = model.fastest()[0]
    assert best.stages == 6
    assert model.seconds(best) < 0.95 * model.seconds(replace(best, stages=4))


@needs_compiler
@pytest.mark.parametrize("columns", [64, 256])
def test_machine_code_asks_for_tiles_and_spills_nothing(columns: int) -> None:
    changes = {"block_rows": 128, "block_columns": columns, "warp_columns": columns, "stages": 4}
    _, kernels = kernels_of(conv((56, 56), 320, 256, (1, 1)), "float16", **changes)
    (source,) = kernels.sources.values()
    code = machine_code(source, "sm_90a")
    (facts,) = code.kernels.values()
    found = instructions(code.cubin)
    assert min(found["UTMALDG"], found["HGMMA"]) > 0
    assert found["LDGSTS"] + found["LDGSTS.128"] == 0
    assert facts.spilled_bytes == 0
    assert facts.registers <= plan_of("float16", in_bulk=True, **changes).registers + 32


def test_a_program_holds_its_maps() -> None:
    """As data of its plan, which a file keeps; the driver makes them when it is launched."""
    (case,) = cases(["pointwise_float16"])
    item, program, (expected,) = made(case, target({"kind": "cuda", "arch": "sm_90a"}))
    plan = HostPlan.from_data(json.loads(json.dumps(program.plan.to_data())))
    assert plan == program.plan
    (launch,) = (launch for function in plan.functions for launch in function.launches)
    maps = [argument.map for argument in launch.arguments if argument.map]
    assert [one.extents for one in maps] == [(72, 400), (72, 136)]
    result = simulated(program, 2)(*[one.array() for one in item.inputs])
    assert np.linalg.norm(result.astype("float64") - expected) < item.tolerance * np.linalg.norm(expected)


def test_rows_whose_number_is_known_when_it_runs_come_by_maps_too() -> None:
    x = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"), 9, 9, 512), "float16"))
    weight = constant(64, 1, 1, 512, dtype="float16")
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            sums = op.nn.conv2d(x, weight, data_layout="NHWC", kernel_layout="OHWI")
            output = builder.emit_output(op.nn.relu(builder.emit(sums)))
        builder.emit_func_output(output)
    program = check(builder.get(), {"kind": "cuda", "arch": "sm_90a"}, sizes=(3, 0))
    (launch,) = (launch for function in program.plan.functions for launch in function.launches)
    weights, data = (argument.map for argument in launch.arguments if argument.map)
    assert (data.extents[0], weights.extents) == (512, (512, 64))
    assert value_of(data.extents[1], {"s0": 3}) == 243


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"extents": [72, 4000]}, "reaches beyond its memory"),
        ({"extents": [72, "n"]}, "'n' is no size"),
        ({"box": [64, 0]}, "0 is no size"),
        ({"strides": []}, "there is no map"),
        ({"dtype": "float31"}, "there is no map"),
    ],
)
def test_a_map_that_is_none_is_refused_when_a_program_is_read(changes: dict[str, Any], says: str) -> None:
    """The driver would not know where the memory ends, and Python had other words for the rest."""
    rows = TensorMap("float16", (72, 400), (144,), (64, 64))
    launch = Launch("k", "k", (Argument(0, map=rows),), (1, 1, 1), (32, 1, 1))
    plan = HostPlan((Allocation(400 * 144),), (), (), (HostFunction("main", (), (), (), (launch,), []),))
    data = json.loads(json.dumps(plan.to_data()))
    check_plan(HostPlan.from_data(data), ["k"])
    data["functions"][0]["launches"][0]["arguments"][0]["map"].update(changes)
    with pytest.raises(ValueError, match=says):
        check_plan(HostPlan.from_data(data), ["k"])
