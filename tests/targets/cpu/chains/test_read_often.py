"""What reads its operands several times is not made to compute them each time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from eqsat_layout.graph.legalised_calls import legalise_calls
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.system.store import ArtefactStore
from eqsat_layout.targets.cpu.chains.read_often import reads_often
from eqsat_layout.targets.cpu.kernels import Build, join_calls
from eqsat_layout.targets.cpu.machine import PRESETS

SHAPE = (1, 6, 8, 8)


def _resized(x: Any, method: str = "linear", size: int = 24, layout: str = "NCHW") -> Any:
    return op.image.resize2d(x, (size, size), method=method, layout=layout)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param(_resized, True, id="larger"),
        pytest.param(lambda x: _resized(x, "nearest_neighbor"), True, id="nearest"),
        pytest.param(lambda x: _resized(x, size=3), False, id="smaller"),
        pytest.param(lambda x: _resized(x, layout="NHWC"), True, id="rows that are added"),
        pytest.param(lambda x: _resized(x, "nearest_neighbor", layout="NHWC"), False, id="lanes along memory"),
        pytest.param(lambda x: op.permute_dims(x, [0, 2, 3, 1]), False, id="transpose"),
        pytest.param(op.nn.relu, False, id="elementwise"),
        pytest.param(op.nn.gelu_tanh, False, id="one element several times"),
        pytest.param(lambda x: op.sum(x, axis=[3]), False, id="reduction"),
    ],
)
def test_what_reads_often_is_seen(made: Callable[[Any], Any], expected: bool) -> None:
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    call = relax.BlockBuilder().normalize(made(x))
    assert reads_often(legalise_calls([call])[0].func) == expected


def test_a_resize_takes_what_follows_and_not_what_is_before(tmp_path: Path) -> None:
    """A transpose and a bias in front of a resize were done for each of its four readings, with no vectors."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 8, 6), "float32"))
    bias = relax.Var("bias", relax.TensorType((1, 6, 1, 1), "float32"))
    with builder.function("main", [x, bias]):
        with builder.dataflow():
            before = builder.emit(op.add(builder.emit(op.permute_dims(x, [0, 3, 1, 2])), bias))
            out = builder.emit_output(op.nn.relu(builder.emit(_resized(before))))
        builder.emit_func_output(out)
    nothing_ahead = Build(tvm.target.Target("llvm"), "none", runs_here=False, store=ArtefactStore(tmp_path, 0))
    joined = join_calls(legalize(builder.get()), PRESETS["avx512"], Notes(), nothing_ahead)
    kernels = [func for _, func in joined.functions_items() if isinstance(func, tvm.tirx.PrimFunc)]
    shapes = [[tuple(map(int, param.ty.shape)) for param in func.params] for func in kernels]
    assert sorted(shapes, key=len) == [
        [SHAPE, (1, 6, 24, 24)],
        [(1, 8, 8, 6), (1, 6, 1, 1), SHAPE],
    ]
