"""Products on tensor cores against double precision, in the simulator: three orders of threads each."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from effort import but_for, tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.cuda.cases import Case, conv, heads, matmul, of_two_types, requantised, sums_moved, sums_read_twice
from targets.cuda.running import (
    H100,
    Kernels,
    check_case,
    in_double_precision,
    inputs_of,
    instructions,
    machine_code,
    needs_compiler,
    relative_error,
    result_of,
)
from tvm import te, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.soundness.cuda import KernelFault
from eqsat_layout.targets.cuda.kernels.arithmetics import ARITHMETICS
from eqsat_layout.targets.cuda.kernels.product_kernel import product_kernel
from eqsat_layout.targets.cuda.kernels.product_model import model_shape, plans_for
from eqsat_layout.targets.cuda.kernels.product_plan import ProductPlan
from eqsat_layout.targets.cuda.kernels.products import product_of

TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2, "tensorfloat32": 2e-3, "float32": 1e-6}


def small(arithmetic: str, **changes: int) -> ProductPlan:
    sizes = {
        "block_rows": 32,
        "block_columns": 64,
        "block_steps": 64 // ARITHMETICS[arithmetic].operand_bytes,
        "warp_rows": 32,
        "warp_columns": 32,
        "stages": 3,
    }
    return ProductPlan(arithmetic, **(sizes | changes))


def dtype_of(arithmetic: str) -> str:
    return ARITHMETICS[arithmetic].operand


def check(case: Case, plan: ProductPlan, *, sums: str = "float32") -> list[Any]:
    dtype = dtype_of(plan.arithmetic)
    func = case(dtype, sums, dtype)
    kernels = Kernels(product_kernel(product_of(func), plan))
    check_case(case, func, kernels, TOLERANCES[plan.arithmetic])
    return kernels.reports


@pytest.mark.parametrize("arithmetic", TOLERANCES)
@pytest.mark.parametrize(("left", "right"), [("mk", "nk"), ("km", "kn")])
def test_matrices_in_both_orders_without_conflicts_of_banks(arithmetic: str, left: str, right: str) -> None:
    """But for a few where results are stored: a lane reads all of its run at once."""
    rows, columns, steps = 40, 72, 104
    (report,) = check(matmul(rows, columns, steps, left=left, right=right), small(arithmetic))
    assert report.bank_conflicts < 0.15 * report.shared_accesses
    assert report.products > 0


@pytest.mark.parametrize(("arithmetic", "sizes"), [("float16", (37, 1, 40)), ("float32", (50, 52, 7))])
def test_sizes_of_no_whole_run(arithmetic: str, sizes: tuple[int, int, int]) -> None:
    check(matmul(*sizes), small(arithmetic))


def test_a_batch_of_matrices() -> None:
    check(matmul(33, 40, 24, batch=3), small("bfloat16"))


WINDOWS = {
    "3x3": conv((9, 8), 16, 40, (3, 3), pad=1),
    "strides": conv((11, 9), 16, 32, (3, 3), pad=1, stride=2, batch=2),
    "dilation": conv((11, 9), 8, 32, (3, 2), dilation=2),
    "1x1": conv((7, 7), 24, 33, (1, 1)),
    "first layer": conv((12, 12), 3, 16, (7, 7), pad=3, stride=2),
    "four channels": conv((12, 12), 4, 16, (3, 3), pad=1),
    "line": conv((40,), 16, 24, (5,), pad=2),
    "cube": conv((5, 4, 6), 8, 16, (2, 3, 2), pad=1),
    "groups": conv((8, 8), 32, 48, (3, 3), pad=1, groups=2),
    "NCHW": conv((8, 8), 16, 24, (3, 3), pad=1, layout="NCHW"),
    "NCHW strides": conv((9, 8), 8, 40, (3, 3), stride=2, layout="NCHW", batch=2),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_halves(name: str) -> None:
    check(WINDOWS[name], small("float16"))


@pytest.mark.parametrize("name", ["3x3", "NCHW"])
def test_windows_of_floats(name: str) -> None:
    check(WINDOWS[name], small("float32"))


@pytest.mark.parametrize(("arithmetic", "splits"), [("float16", 3), ("float32", 2)])
def test_parts_of_a_sum_are_added_in_order(arithmetic: str, splits: int) -> None:
    check(conv((6, 5), 16, 23, (3, 3), pad=1), small(arithmetic, splits=splits))


def test_sums_of_halves_are_rounded_once() -> None:
    check(matmul(40, 40, 200), small("float16"), sums="float16")


def test_halves_by_floats_are_products_of_floats() -> None:
    check(of_two_types(33, 40, 50), small("float32"))


def test_what_follows_may_lay_results_out_otherwise() -> None:
    check(heads(24, 3, 16, 40), small("float16"))


def check_exact(case: Case, dtype: str, result: str, **changes: int) -> None:
    func = case(dtype, "int32", result)
    kernels = Kernels(product_kernel(product_of(func), small(dtype, **changes)))
    arrays = inputs_of(func)
    for array in arrays[:2]:
        array[...] = np.random.default_rng(1).integers(-128, 128, array.shape).astype(dtype)
    reference = np.trunc(in_double_precision(case("float64", "float64", "float64"), arrays))  # a floor of -0.5 is 0
    for order in range(3):
        assert (result_of(kernels, arrays, order) == reference).all()


BYTES = {
    "rows along the steps": matmul(40, 72, 104, right="nk"),
    "columns in memory": matmul(37, 33, 70),
    "a batch": matmul(33, 40, 64, batch=2, left="km"),
    "3x3": WINDOWS["3x3"],
    "first layer": WINDOWS["first layer"],
    "NCHW": WINDOWS["NCHW"],
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_are_exact(name: str) -> None:
    check_exact(BYTES[name], "int8", "int32")


def test_unsigned_bytes_and_parts_of_their_sums() -> None:
    check_exact(matmul(40, 24, 600, right="nk"), "uint8", "int32", splits=3)


def test_sums_of_bytes_below_zero_are_cut_off() -> None:
    """Registers hold the bits of sums as unsigned numbers: a ReLU of single elements was left out as needless."""

    def relu(dtype: str, sums: str, result: str) -> Any:
        a, b = te.placeholder((16, 32), dtype, name="a"), te.placeholder((9, 32), dtype, name="b")
        k = te.reduce_axis((0, 32), "k")
        c = te.compute((16, 9), lambda m, n: te.sum(a[m, k].astype(sums) * b[n, k].astype(sums), axis=k), name="c")
        return te.create_prim_func([a, b, te.compute((16, 9), lambda *at: te.max(c(*at), tirx.const(0, result)))])

    check_exact(relu, "int8", "int32")


@pytest.mark.parametrize("columns", [32, 33, 36])
def test_bytes_of_sums_of_bytes(columns: int) -> None:
    check_exact(requantised(24, columns, 64), "int8", "float32")


extents = st.integers(2, 80)


@settings(max_examples=tries(4), deadline=None, derandomize=True)
@given(extents, extents, extents, st.sampled_from([2, 3, 4]), st.sampled_from(["float16", "tensorfloat32"]))
def test_any_sizes(rows: int, columns: int, steps: int, stages: int, arithmetic: str) -> None:
    check(matmul(rows, columns, steps), small(arithmetic, stages=stages, warp_rows=16, warp_columns=64))


def test_floats_keep_their_precision() -> None:
    """Products of three tensorfloat32 are as near to the truth as a sum of floats in NumPy."""
    func, twin = (matmul(48, 64, 512)(dtype, dtype, dtype) for dtype in ("float32", "float64"))
    arrays = inputs_of(func)
    reference = in_double_precision(twin, arrays)
    a, b, bias, _ = arrays
    in_floats = np.maximum(a @ b + bias, np.float32(-0.5))
    ours = result_of(Kernels(product_kernel(product_of(func), small("float32"))), arrays)
    assert relative_error(ours, reference) < 2 * relative_error(in_floats, reference)


def test_floats_are_cut_in_two_by_few_instructions_and_what_is_no_number_stays_so() -> None:
    """``cvt.rna`` is three: main loops had 818 instructions where 561 do."""
    func = heads(32, 1, 64, 32)("float32", "float32", "float32")
    kernels = Kernels(product_kernel(product_of(func), small("float32")))
    assert not any("cvt.rna" in source for source in kernels.sources.values())
    a, *rest = inputs_of(func)
    a.view("uint32")[[3, 5], [7, 9]] = [0x7FFFFFFF, 0xFFFFFFFF]  # those that a carry makes zero
    (got,) = result_of(kernels, [a, *rest])
    assert np.isnan(got).all(axis=1).tolist() == [row in (3, 5) for row in range(32)]
    assert not np.isnan(np.delete(got, [3, 5], axis=0)).any()


def test_plans_fit_and_the_first_one_is_for_the_size() -> None:
    few, many = (product_of(matmul(size, size, 2048)("float16", "float32", "float16")) for size in (64, 4096))
    for product in (few, many):
        for plan in plans_for(product, H100):
            assert 4 * plan.shared_words <= H100.shared_bytes_per_block
            assert plan.registers * plan.threads <= H100.registers
    assert plans_for(few, H100)[0].splits > 1
    best = plans_for(many, H100)[0]
    assert best.splits == 1
    assert best.block_rows * best.block_columns >= 128 * 128


@needs_compiler
@pytest.mark.parametrize(
    ("arithmetic", "arch"),
    but_for(
        [*((name, "sm_90") for name in (*TOLERANCES, "int8")), ("float16", "sm_80")],
        [("float16", "sm_90"), ("bfloat16", "sm_90"), ("tensorfloat32", "sm_90")],  # fewer registers than float32
    ),
)
def test_machine_code_spills_nothing_and_has_the_instructions(arithmetic: str, arch: str) -> None:
    dtype = dtype_of(arithmetic)
    sums, result = ("int32", "int32") if dtype == "int8" else ("float32", dtype)
    product = product_of(conv((56, 56), 64, 64, (3, 3), pad=1)(dtype, sums, result))
    machine = replace(H100, of_floats="tensorfloat32") if arithmetic == "tensorfloat32" else H100
    plans = [plan for plan in plans_for(product, machine) if plan.splits == 1 and not plan.streams]
    widest = max(plans, key=lambda plan: (plan.registers, plan.stages))
    for plan in (plans[0], widest):
        (source,) = Kernels(product_kernel(product, plan), arch).sources.values()
        made = machine_code(source, arch)
        (facts,) = made.kernels.values()
        assert facts.spilled_bytes == 0
        assert facts.registers * plan.threads <= H100.registers
        assert facts.registers <= plan.registers + 32, "the plan counts too few registers"
        assert re.search(r"cp\.async\.cg\.shared\.global \[%0\], \[%1\], 16", source)
        assert ARITHMETICS[arithmetic].instruction in source
        done = instructions(made.cubin)
        assert done["LDGSTS.128"] >= plan.stages - 1
        assert done["IMMA" if dtype == "int8" else "HMMA"] >= source.count("mma.sync") > 0


def test_sums_in_the_other_order() -> None:
    check(sums_moved(40, -1, 39), small("float16"))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (conv((8, 8), 16, 16, (3, 3), groups=16), "tensor cores are of no use"),
        (matmul(0, 4, 4), "no elements"),
        (sums_read_twice(40), "does not read each sum once"),
        (sums_moved(40, 1, -3), "does not read each sum once"),  # tiles read in front of the operand for these
        (sums_moved(40, 2, 0), "does not read each sum once"),
    ],
)
def test_refusals_say_why(case: Case, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        product_of(case("float16", "float32", "float16"))


def test_groups_of_a_convolution_are_a_batch() -> None:
    product = product_of(WINDOWS["groups"]("float16", "float32", "float16"))
    assert (product.batch.extent, product.rows.extent, product.columns.extent) == (2, 64, 24)


def test_parts_of_a_sum_without_a_fence_are_a_race() -> None:
    """The last block reads what others have stored: the fence before they count is what makes that safe."""
    func = matmul(24, 24, 200)("float16", "float32", "float16")
    kernels = Kernels(product_kernel(product_of(func), small("float16", splits=3)))
    ((name, source),) = kernels.sources.items()
    assert source.count("fence_acq_rel_gpu") > 1
    kernels.sources[name] = re.sub(r'"fence\.acq_rel\.gpu;"', '""', source)
    with pytest.raises(KernelFault, match="another block wrote"):
        result_of(kernels, inputs_of(func))


def test_places_of_a_transposed_convolution_are_two_axes() -> None:
    """Of ``h // 2`` and ``h % 2`` the weights know one only: else each place of the result was a product of its own."""

    def places(dtype: str, sums: str, result: str) -> Any:
        x, w = te.placeholder((9, 16), dtype, name="x"), te.placeholder((2, 2, 16, 24), dtype, name="w")
        r, c = te.reduce_axis((0, 2), "r"), te.reduce_axis((0, 16), "c")

        def element(h: Any, o: Any) -> Any:
            return te.sum(
                x[h // 2 + h % 2 + r, c].astype(sums) * w[tirx.floormod(h, 2), r, c, o].astype(sums), axis=[r, c]
            )

        return te.create_prim_func([x, w, te.compute((14, 24), element, name="y")])

    product = product_of(places("float16", "float32", "float32"))
    assert [int(group.extent) for group in (product.batch, product.rows, product.columns)] == [2, 7, 24]
    check(places, small("float16"))


def test_batches_that_became_channels_are_batches_again() -> None:
    """As in front of a norm of instances: the size that sets most axes apart is taken, not the least."""

    def folded(dtype: str, sums: str, result: str) -> Any:
        x, w = te.placeholder((3, 8, 32), dtype, name="x"), te.placeholder((2, 32, 8), dtype, name="w")
        c = te.reduce_axis((0, 32), "c")

        def element(o: Any, p: Any) -> Any:
            return te.sum(x[o // 16, p, c].astype(sums) * w[o % 16 // 8, c, o % 8].astype(sums), axis=[c])

        return te.create_prim_func([x, w, te.compute((48, 8), element, name="y")])

    product = product_of(folded("float16", "float32", "float32"))
    assert sorted(int(group.extent) for group in (product.batch, product.rows, product.columns)) == [1, 16, 24]


def test_steps_end_with_the_axis_of_long_runs() -> None:
    """Not with a window's three weights: the data's channels were loaded one by one, in 93.8 us of modelled 26.6."""

    def turned(dtype: str, sums: str, result: str) -> Any:
        x, w = te.placeholder((9, 14, 32), dtype, name="x"), te.placeholder((16, 32, 3), dtype, name="w")
        c, r = te.reduce_axis((0, 32), "c"), te.reduce_axis((0, 3), "r")

        def element(o: Any, h: Any, v: Any) -> Any:
            return te.sum(x[h, v + r, c].astype(sums) * w[o, c, r].astype(sums), axis=[c, r])

        return te.create_prim_func([x, w, te.compute((16, 9, 12), element, name="y")])

    product = product_of(turned("float16", "float32", "float32"))
    assert [int(axis.extent) for axis in product.steps.axes] == [3, 32]
    assert model_shape(product, ARITHMETICS["float16"]).together == (0, 16)
    check(turned, small("float16"))
