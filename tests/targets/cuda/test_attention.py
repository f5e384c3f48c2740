"""Attention in one launch against float64, in the simulator: three orders of threads each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from effort import IS_LONG, but_for, some, tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.cuda.running import (
    H100,
    Array,
    Kernels,
    check_in_every_order,
    inputs_of,
    machine_code,
    needs_compiler,
)
from tvm import te, tirx, topi

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.kernels.arithmetics import ARITHMETICS
from eqsat_layout.targets.cuda.kernels.attention import attention_of
from eqsat_layout.targets.cuda.kernels.attention_kernel import attention_kernel_of
from eqsat_layout.targets.cuda.kernels.attention_plan import AttentionPlan, AttentionTiles, attention_sides, tiles_of
from eqsat_layout.targets.cuda.kernels.product_plan import arithmetic_of
from eqsat_layout.targets.cuda.machine import CudaMachine, blocks_by_registers

TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "tensorfloat32": 2e-3}
SMALL = AttentionPlan(warps=2, keys=32, stages=2)


@dataclass(frozen=True)
class Case:
    """``orders``: of the axes of queries, keys and values in memory: batch, head, row (or key), element."""

    rows: int
    keys: int
    size: int
    batch: int = 1
    heads: int = 2
    columns: int = 0
    shared_by: int = 1
    """Heads that have the same keys and values."""
    orders: tuple[str, str, str] = ("bhrc", "bhrc", "bhrc")
    mask: str = ""
    """The axes that it is along."""

    def func(self, dtype: str) -> Any:
        """Queries, keys, values and the mask, if there is one, to results."""
        columns, heads = self.columns or self.size, self.heads // self.shared_by
        extents = (
            {"b": self.batch, "h": self.heads, "r": self.rows, "c": self.size},
            {"b": self.batch, "h": heads, "r": self.keys, "c": self.size},
            {"b": self.batch, "h": heads, "r": self.keys, "c": columns},
        )
        shapes = [[sizes[axis] for axis in order] for sizes, order in zip(extents, self.orders, strict=True)]
        q, k, v = (te.placeholder(shape, dtype, name=name) for shape, name in zip(shapes, "qkv", strict=True))
        sizes = {"b": self.batch, "h": self.heads, "r": self.rows, "k": self.keys}
        mask = te.placeholder([sizes[axis] for axis in self.mask], dtype, name="mask")

        def load(tensor: Any, number: int, b: Any, h: Any, r: Any, c: Any) -> Any:
            places = {"b": b, "h": h, "r": r, "c": c}
            return tensor(*(places[axis] for axis in self.orders[number]))

        step, key = te.reduce_axis((0, self.size), "step"), te.reduce_axis((0, self.keys), "key")
        shape = (self.batch, self.heads, self.rows, self.keys)
        scores = te.compute(
            shape,
            lambda b, h, r, t: te.sum(
                load(q, 0, b, h, r, step) * load(k, 1, b, h // self.shared_by, t, step), axis=step
            ),
            name="scores",
        )

        def scored(b: Any, h: Any, r: Any, t: Any) -> Any:
            places = {"b": b, "h": h, "r": r, "k": t}
            value = scores(b, h, r, t) / tirx.const(self.size**0.5, dtype)
            return value + mask(*(places[axis] for axis in self.mask)) if self.mask else value

        powers = topi.nn.softmax(te.compute(shape, scored, name="scored"))
        values = te.compute(
            (self.batch, self.heads, self.rows, columns),
            lambda b, h, r, c: te.sum(powers(b, h, r, key) * load(v, 2, b, h // self.shared_by, key, c), axis=key),
            name="values",
        )
        result = te.compute(
            (self.batch, self.rows, self.heads, columns), lambda b, r, h, c: values(b, h, r, c), name="result"
        )
        return te.create_prim_func([q, k, v, *([mask] if self.mask else []), result])

    def reference(self, arrays: list[Array]) -> Array:
        wide = [array.astype("float64") for array in arrays[:3]]
        q, k, v = (
            one.transpose([order.index(a) for a in "bhrc"]) for one, order in zip(wide, self.orders, strict=True)
        )
        k, v = (np.repeat(one, self.shared_by, axis=1) for one in (k, v))
        scores = q @ k.swapaxes(2, 3) / self.size**0.5
        if self.mask:
            mask = arrays[3].astype("float64")
            scores = scores + mask.reshape(
                [n if a in self.mask else 1 for a, n in zip("bhrk", scores.shape, strict=True)]
            )
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        result: Array = (powers / powers.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)
        return result


def causal(case: Case) -> Array:
    """A mask of minus infinity above the diagonal."""
    above = np.triu(np.ones((case.rows, case.keys)), k=1)
    return np.where(above > 0, -np.inf, 0.0)


def of_arithmetic(case: Case, name: str) -> tuple[Any, CudaMachine]:
    """The function in its dtype, and a machine that is asked for this arithmetic."""
    is_cut = name == "tensorfloat32"
    return case.func("float32" if is_cut else name), replace(H100, of_floats=name) if is_cut else H100


def kernels_of(func: Any, plan: AttentionPlan, machine: CudaMachine = H100) -> Kernels:
    attention = attention_of(func)
    arithmetic = arithmetic_of(attention, machine)
    tiles = AttentionTiles(attention, arithmetic, attention_sides(attention, arithmetic), plan)
    kernels = Kernels(attention_kernel_of(tiles))
    assert len(kernels.sources) == 1
    return kernels


def check(
    case: Case,
    dtype: str,
    plan: AttentionPlan = SMALL,
    mask: Array | None = None,
    scale: float = 1.0,
    tolerance: float | None = None,
) -> Any:
    func, machine = of_arithmetic(case, dtype)
    arrays = inputs_of(func)
    arrays[0] *= np.asarray(scale, arrays[0].dtype)
    if mask is not None:
        arrays[3][...] = mask
    kernels = kernels_of(func, plan, machine)
    check_in_every_order(kernels, arrays, case.reference(arrays), tolerance or TOLERANCES[dtype])
    return kernels.reports[0]


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_scores_are_never_in_memory(dtype: str) -> None:
    report = check(Case(rows=64, keys=64, size=32), dtype)
    assert report.bank_conflicts <= 0.15 * report.shared_accesses
    assert report.products > 0


FEW = but_for(TOLERANCES, ["bfloat16", "tensorfloat32"])
"""What is beyond the sizes is kept out in the same way in all arithmetics of halves, and of floats."""


@pytest.mark.parametrize("dtype", FEW)
def test_odd_sizes(dtype: str) -> None:
    check(Case(rows=37, keys=45, size=20, columns=28), dtype)


CASES = {
    "heads of 16": Case(rows=32, keys=40, size=16),
    "heads of 64": Case(rows=32, keys=33, size=64, heads=1),
    "heads of 80": Case(rows=32, keys=32, size=80, heads=1),
    "heads of 128": Case(rows=32, keys=40, size=128, heads=1),
    "a single query": Case(rows=1, keys=100, size=32),
    "rows between heads": Case(rows=33, keys=40, size=32, batch=2, orders=("brhc", "brhc", "brhc")),
    "keys along the rows": Case(rows=32, keys=40, size=32, orders=("bhrc", "bhcr", "bhrc")),
    "all the other way": Case(rows=32, keys=40, size=24, orders=("bhcr", "bhcr", "bhcr")),
    "keys that heads share": Case(rows=32, keys=40, size=32, heads=4, shared_by=2),
    "keys of all heads": Case(rows=20, keys=40, size=32, heads=3, shared_by=3),
}


IN_FLOATS = ["heads of 80", "a single query", "keys along the rows"]
"""Their layouts are read by the same code: in float32 the instructions differ and the sizes of tiles."""


@pytest.mark.parametrize(
    ("name", "dtype"), [(n, "float16") for n in CASES] + [(n, "float32") for n in CASES if IS_LONG or n in IN_FLOATS]
)
def test_shapes_and_layouts(name: str, dtype: str) -> None:
    check(CASES[name], dtype)


@pytest.mark.parametrize("axes", ["bk", "rk", "bhrk"])
def test_masks_are_added(axes: str) -> None:
    check(Case(rows=37, keys=45, size=32, batch=2, mask=axes), "float16")


@pytest.mark.parametrize("dtype", FEW)
def test_what_no_query_sees_in_a_whole_tile(dtype: str) -> None:
    """The largest score of a tile is minus infinity then, and a difference to it would be no number."""
    case = Case(rows=48, keys=70, size=16, mask="rk")
    check(case, dtype, mask=causal(case))
    check(case, dtype, mask=causal(case)[:, ::-1])


def test_large_scores() -> None:
    """Powers of them would be infinite; and what was summed is scaled when a larger one comes.

    NumPy's own floats are off by 1.05e-6: such scores are rounded more.
    """
    check(Case(rows=32, keys=150, size=32), "float32", scale=40.0, tolerance=2e-6)


@pytest.mark.parametrize(("warps", "keys", "stages"), [(1, 16, 3), (4, 64, 2), (2, 128, 3)])
def test_plans(warps: int, keys: int, stages: int) -> None:
    check(Case(rows=70, keys=150, size=32), "float16", AttentionPlan(warps, keys, stages))


def test_plans_fit_and_the_first_one_is_for_the_size() -> None:
    few, many = (
        attention_of(Case(rows=extent, keys=extent, size=64, heads=heads).func("float16"))
        for extent, heads in ((64, 1), (2048, 64))
    )
    for tiles in (*tiles_of(few, H100), *tiles_of(many, H100)):
        assert 4 * tiles.shared_words <= H100.shared_bytes_per_block
        assert blocks_by_registers(tiles.registers, tiles.threads) > 0
    assert tiles_of(few, H100)[0].rows < tiles_of(many, H100)[0].rows


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "size"),
    but_for(
        [*((dtype, 128) for dtype in TOLERANCES), ("float16", 64)],
        [("bfloat16", 128), ("tensorfloat32", 128), ("float16", 64)],  # as many registers as halves, fewer than floats
    ),
)
def test_machine_code_spills_nothing(dtype: str, size: int) -> None:
    func, machine = of_arithmetic(Case(rows=384, keys=384, size=size, batch=8, heads=12, mask="bk"), dtype)
    found = tiles_of(attention_of(func), machine)
    for tiles in some([max(found, key=lambda one: (one.registers, one.plan.stages)), found[0]]):
        (source,) = Kernels(attention_kernel_of(tiles)).sources.values()
        (facts,) = machine_code(source, "sm_90").kernels.values()
        assert facts.spilled_bytes == 0
        planned = blocks_by_registers(tiles.registers, tiles.threads)
        assert blocks_by_registers(facts.registers, tiles.threads) >= planned, "fewer blocks than planned fit"


@needs_compiler
def test_small_blocks_have_the_registers_that_they_need() -> None:
    """Of its own accord the compiler spills 32 bytes here, so as to have room for more blocks."""
    func = Case(rows=197, keys=197, size=64, heads=12, orders=("brhc", "brhc", "brhc")).func("float16")
    func = func.with_attr("eqsat_layout.constants", [])  # launches overlap
    attention, arithmetic = attention_of(func), ARITHMETICS["float16"]
    plan = AttentionPlan(warps=1, keys=128, stages=3)
    tiles = AttentionTiles(attention, arithmetic, attention_sides(attention, arithmetic), plan)
    kernels = Kernels(attention_kernel_of(tiles))
    source = "".join(kernels.sources.values())
    assert "__launch_bounds__(32, 8)" in source
    assert machine_code(source, "sm_90").spilled_bytes == 0


def test_refusals_say_why() -> None:
    x = te.placeholder((4, 40), "float32", name="x")
    with pytest.raises(Refused, match="no two products"):
        attention_of(te.create_prim_func([x, topi.nn.softmax(x)]))


extents = st.integers(2, 70)


@settings(max_examples=tries(4), deadline=None, derandomize=True)
@given(extents, extents, extents, extents, st.sampled_from(["float16", "float32"]))
def test_any_sizes(rows: int, keys: int, size: int, columns: int, dtype: str) -> None:
    check(Case(rows=rows, keys=keys, size=size, columns=columns), dtype)
