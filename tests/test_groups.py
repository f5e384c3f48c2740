"""Groups of physical axes: what a target holds, and that they neither get lost nor appear on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from compare import assert_same_fast
from programs import constant, ops, program
from tvm import relax
from tvm.relax import op
from tvm.relax.transform import LegalizeOps

import eqsat_layout
from eqsat_layout.egraph.flows import Spokesman
from eqsat_layout.egraph.rules import read_commands, rule_files
from eqsat_layout.egraph.saturate import saturate
from eqsat_layout.errors import LayoutError, TargetError
from eqsat_layout.graph.emit import emit_module
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.importer import import_module
from eqsat_layout.graph.put_back import _map
from eqsat_layout.graph.steps import Convert, Given, Steps
from eqsat_layout.maps import Format, IndexMap
from eqsat_layout.targets import axis_groups, lower, normalize_target
from eqsat_layout.targets.cpu import target as base
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
    for part in ("main: relax.nn.conv2d bound to 'c'", *said, "global memory of target 'llvm' holds 1"):
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
    assert {axis_groups(normalize_target(), scope) for scope in ("global", "local", "global.texture")} == {1}


def test_where_memory_has_groups_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(base._AXIS_GROUPS["llvm"], "global", 2)
    mod = net(frozen={"c": ["NCHW|4c", "OIHW4i4o"]})
    plan = eqsat_layout.plan(mod)
    assert len(plan.transforms) == 2  # into the groups and out of them: the relus run in flat memory
    assert_same_fast(mod, plan.module)
    with pytest.raises(TargetError, match=r"3 groups.*holds 2"):
        eqsat_layout.plan(net(frozen={"c": ["NC|HW|4c", "OIHW4i4o"]}))


@pytest.mark.parametrize("layout", ["NC|HW", "NCHW|4c", "NCHW|3c"])
def test_no_format_follows_from_theirs(layout: str) -> None:
    """Neither through views, pads, crops nor ops: there are just those that there are if nothing is moved."""
    plain, _ = formats_and_frozen("NCHW")
    found, frozen = formats_and_frozen(layout)
    assert any(Format.from_key(key).separators for key in frozen)
    assert found - frozen <= plain


def formats_and_frozen(layout: str) -> tuple[set[str], set[str]]:
    """The formats of a saturated graph around a convolution, and those that the convolution is frozen to."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(builder.emit(op.permute_dims(x, [0, 3, 1, 2])), constant(8, 8, 1, 1)), "c")
        z = builder.emit(op.permute_dims(y, [0, 2, 3, 1]))
        y = builder.emit(op.nn.relu(builder.emit(op.nn.pad(y, [0, 0, 0, 1, 0, 0, 0, 0], "constant", 0.0))))
        y = builder.emit(op.strided_slice(builder.emit(op.permute_dims(y, [1, 0, 2, 3])), [0], [0], [8]))
        return op.reshape(y, (64, 3)), z

    imported = import_module(program(body, (1, 8, 3, 8), frozen={"c": [layout, "OIHW"]}))
    (graph,) = imported.graphs
    commands = [command for path in rule_files(None) for command in read_commands(path)]
    saturated = saturate(graph, imported.signatures, commands)
    frozen = {f.key for s in imported.signatures.values() if s.frozen for f in (*s.frozen.operands, *s.frozen.results)}
    return set(saturated.names.formats), frozen


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


def test_callbacks_are_not_asked_about_them() -> None:
    asked: list[Any] = []

    def callback(operands: Any, results: Any, direction: str, index: int, index_map: IndexMap) -> Any:
        asked.append(index_map)
        return [([index_map], [index_map])]

    signatures = import_module(program(lambda builder, x: op.nn.relu(x), (2, 4))).signatures
    spokesman = Spokesman(next(iter(signatures.values())), "mine", callback)
    transposed = IndexMap.permutation((2, 4), (1, 0))
    grouped = Format.make(transposed, separators=(1,))
    assert spokesman.flows(grouped, result=0, operand=None) == ()
    assert not asked
    assert "flat" in spokesman.why_not(grouped)
    assert spokesman.flows(Format.make(transposed), result=0, operand=None)


def test_a_conversion_into_groups_is_no_rewrite_of_a_primfunc() -> None:
    flat = Format.make(IndexMap.permutation((2, 4), (1, 0)))
    grouped = Format.make(flat.index_map, separators=(1,))
    ty, plain = TensorType((2, 4), "float32"), Format.row_major((2, 4))
    assert _map(Convert(1, 0, ty, plain, flat)) == flat.index_map
    assert _map(Convert(1, 0, ty, plain, grouped)) is None
    assert _map(Convert(1, 0, ty, grouped, plain)) is None


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
        emitted = emit_module(mod, [(graph, steps)], imported.signatures)
        assert len([name for name in ops(emitted) if "rewrite" in name]) == copies
        value = np.arange(8, dtype="float32").reshape(2, 4) - 4
        vm = relax.VirtualMachine(lower(emitted), tvm.cpu())
        np.testing.assert_array_equal(vm["main"](tvm.runtime.tensor(value)).numpy(), value)
