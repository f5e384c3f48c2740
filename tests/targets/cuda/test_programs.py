"""Programs for CUDA that really run, on the simulator: every kind of op, in several orders of threads."""

from __future__ import annotations

from typing import Any

import pytest
from programs import program
from targets.cuda.simulating import CUDA, check, compiled, launches
from targets.device_cases import AROUND_CONVOLUTIONS, ROWS, SIZE, Body, attention, chain, concat, conv, first_layer, nn
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import tirx as T


def test_epilogues_are_fused() -> None:
    assert len(launches(check(program(chain, SIZE), orders=(0, 1, 2)))) <= 6


@pytest.mark.parametrize("body", AROUND_CONVOLUTIONS.values(), ids=AROUND_CONVOLUTIONS)
def test_ops_around_convolutions(body: Body) -> None:
    check(program(body, SIZE))


def test_concat() -> None:
    check(program(concat, SIZE, SIZE))


def test_the_first_layer_of_a_network() -> None:
    check(program(first_layer, (1, 3, 16, 16)))


@pytest.mark.parametrize("emit", ROWS.values(), ids=ROWS)
def test_rows(emit: Any) -> None:
    check(program(lambda builder, x: builder.emit(nn.relu(builder.emit(emit(x)))), (2, 24, 64)), orders=(0, 2))


def test_attention() -> None:
    check(program(attention, *[(2, 4, 16, 16)] * 3))


def test_an_opaque_kernel_runs_in_one_thread() -> None:
    @T.prim_func(private=True, s_tir=True)
    def opaque(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
        for i in range(64):
            with T.sblock("o"):
                j = T.axis.opaque(64, i)
                T.reads(x[0:64])
                T.writes(y[0:64])
                y[j] = x[63 - j]

    def body(builder: Any, x: Any) -> Any:
        func = builder.add_func(opaque, "opaque")
        y = relax.call_tir(func, [builder.emit(nn.relu(x))], relax.TensorType((64,), "float32"))
        return builder.emit(nn.relu(builder.emit(y)))

    notes: list[str] = []
    check(program(body, (64,)), notes=notes)
    assert any("opaque runs in one thread" in note for note in notes)


@pytest.mark.parametrize("axis", ["n", "h"])
def test_sizes_that_are_known_at_run_time_only(axis: str) -> None:
    size = tirx.Var(axis, "int64")
    shape = (size, 8, 6, 6) if axis == "n" else (1, 8, size, size)

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(nn.relu(conv(builder, x, channels=8)))
        return builder.emit(nn.softmax(conv(builder, y, 1, channels=8), axis=1))

    check(program(body, shape), sizes=(1, 5))


def test_what_is_exact_stays_so() -> None:
    check(program(chain, SIZE), approx=False)


def test_dtypes() -> None:
    def body(builder: Any, x: Any) -> Any:
        whole = builder.emit(op.astype(x, "int64"))
        return builder.emit(op.astype(builder.emit(op.add(whole, relax.const(3, "int64"))), "float16"))

    check(program(body, (5, 7)))


def test_an_unknown_architecture_is_refused() -> None:
    from eqsat_layout.errors import TargetError

    with pytest.raises(TargetError, match="'sm_61' is not known; there are sm_80"):
        compiled(program(chain, SIZE), {"kind": "cuda", "arch": "sm_61"})
    with pytest.raises(TargetError, match="'h100' is of architecture sm_90, not sm_80"):
        compiled(program(chain, SIZE), {**CUDA, "model": "h100"})
