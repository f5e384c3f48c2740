"""Groups of physical axes in flat memory, which holds none; the grid of tests/targets has a memory with some."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from programs import constant, ops, program
from tvm import relax
from tvm.relax import op
from tvm.relax.transform import LegalizeOps

import eqsat_layout
from eqsat_layout.errors import LayoutError, TargetError
from eqsat_layout.graph.emit import emit_module
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.importer import import_module
from eqsat_layout.graph.put_back import buffer_map
from eqsat_layout.graph.steps import Convert, Given, Steps
from eqsat_layout.maps import Format, IndexMap
from eqsat_layout.passes.evaluate import evaluate
from eqsat_layout.targets.lowering import lower
from eqsat_layout.targets.registry import target
from eqsat_layout.tir.flow import backward, forward, why_not
from eqsat_layout.tir.signature import analyse


def net(**kw: Any) -> Any:
    """relu - conv "c" - relu."""

    def body(builder: Any, x: Any) -> Any:
        return op.nn.relu(builder.emit(op.nn.conv2d(builder.emit(op.nn.relu(x)), constant(8, 8, 3, 3), padding=1), "c"))

    return program(body, (1, 8, 5, 5), **kw)


@pytest.mark.parametrize("target", [None, "llvm"])
@pytest.mark.parametrize("how", ["binding", "op", "argument"])
@pytest.mark.parametrize(
    ("layouts", "said"),
    [
        (["NCHW|4c", "OIHW4i4o"], ["operand 0", "(0, j//4, k, l | j%4)", "2 groups"]),
        (["NC|HW|4c", "OIHW4i4o"], ["operand 0", "(0, j//4 | k, l | j%4)", "3 groups"]),
        (["NCHW", "OI|HW"], ["operand 1", "(i, j | k, l)", "2 groups"]),
        (["NCHW", "OIHW", "NC|HW"], ["result 0", "(0, j | k, l)", "2 groups"]),
    ],
)
def test_more_groups_than_the_target_holds(target: Any, how: str, layouts: list[str], said: list[str]) -> None:
    entries = {"c" if how == "binding" else "relax.nn.conv2d": layouts}
    mod = net() if how == "argument" else net(frozen=entries)
    with pytest.raises(TargetError) as caught:
        eqsat_layout.plan(mod, target, desired_layouts=entries if how == "argument" else None)
    for part in ("main: relax.nn.conv2d bound to 'c'", *said, "global memory of target 'llvm'", "it holds 1"):
        assert part in str(caught.value)


def test_malformed_groups_are_a_layout_error() -> None:
    with pytest.raises(LayoutError, match=r"'c'.*malformed layout name 'NCHW\|'"):
        eqsat_layout.plan(net(frozen={"c": ["NCHW|", "OIHW"]}))


def test_a_group_of_blocks_that_are_left_out_is_none() -> None:
    plan = eqsat_layout.plan(net(frozen={"relax.nn.conv2d": ["NCHW|64c", "OIHW"]}))
    assert any("NCHW is used" in note for note in plan.notes)
    with pytest.raises(TargetError, match=r"\(0, j \| k, l\)"):
        eqsat_layout.plan(net(frozen={"relax.nn.conv2d": ["NC|HW64c", "OIHW"]}))


def test_llvm_memory_is_flat() -> None:
    assert {scope: memory.axis_groups for scope, memory in target().memories.items()} == {"global": 1}


def test_flow_refuses_them() -> None:
    mod = LegalizeOps()(program(lambda builder, x: op.nn.relu(x), (2, 4)))
    (func,) = (f for v, f in mod.functions_items() if v.name_hint != "main")
    computation = analyse(func)
    assert computation is not None
    transposed = IndexMap.permutation((2, 4), (1, 0))
    assert backward(computation, 0, Format.make(transposed))
    grouped = Format.make(transposed, separators=(1,))
    assert backward(computation, 0, grouped) == ()
    assert forward(computation, 0, grouped) == ()
    assert "groups" in (why_not(computation, grouped) or "")


def test_a_conversion_into_groups_is_no_rewrite_of_a_primfunc() -> None:
    flat = Format.make(IndexMap.permutation((2, 4), (1, 0)))
    grouped = Format.make(flat.index_map, separators=(1,))
    ty, plain = TensorType((2, 4), "float32"), Format.row_major((2, 4))
    assert buffer_map(Convert(1, 0, ty, plain, flat)) == flat.index_map
    assert buffer_map(Convert(1, 0, ty, plain, grouped)) is None
    assert buffer_map(Convert(1, 0, ty, grouped, plain)) is None


def test_a_conversion_between_groups_is_a_copy() -> None:
    mod = program(lambda builder, x: op.nn.relu(x), (2, 4))
    imported = import_module(mod)
    (graph,) = imported.graphs
    flat = Format.row_major((2, 4))
    grouped = Format.make(flat.index_map, separators=(1,))
    (ty,) = {node.type for node in graph.nodes}
    assert ty is not None
    x = next(i for i, node in enumerate(graph.nodes) if node.kind == "param")
    for after, copies in ((flat, 0), (grouped, 1)):
        steps = Steps([Given(0, x), Convert(1, 0, ty, flat, after)], [1], {}, {0: x, 1: x})
        emitted = emit_module(mod, [(graph, steps)], imported.signatures, evaluate)
        assert len([name for name in ops(emitted) if "rewrite" in name]) == copies
        value = np.arange(8, dtype="float32").reshape(2, 4) - 4
        vm = relax.VirtualMachine(lower(emitted), tvm.cpu())
        np.testing.assert_array_equal(vm["main"](tvm.runtime.tensor(value)).numpy(), value)
