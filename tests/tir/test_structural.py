"""Mapping nodes of the IR: callbacks that fail do no harm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tvm
from tvm import te, tirx

from eqsat_layout.tir.structural import mapped_body, structural_map, substitute

FAILING = """
import tvm
from test_structural import store
from tvm import tirx
from eqsat_layout.tir.structural import structural_map

def fail(node):
    raise ValueError

for _ in range(300):
    try:
        structural_map(store(), (tvm.ir.TensorLoad, lambda load: tirx.const(1.0, "float32")), (tirx.BufferStore, fail))
    except ValueError:
        continue
    raise AssertionError("not raised")
"""


def store() -> tirx.BufferStore:
    """``y[i] = x[i] + 1``."""
    x = te.placeholder((16,), "float32")
    func = te.create_prim_func([x, te.compute((16,), lambda i: x[i] + 1.0)])
    return func.body.block.body.body.block.body


def test_a_callback_sees_what_came_of_the_nodes_inside() -> None:
    seen: list[tirx.BufferStore] = []

    def note(node: tirx.BufferStore) -> tirx.BufferStore:
        seen.append(node)
        return node

    one = tirx.const(1.0, "float32")
    mapped = structural_map(store(), (tvm.ir.TensorLoad, lambda load: one), (tirx.BufferStore, note))
    assert [type(node.value.a) for node in seen] == [tirx.FloatImm]
    assert mapped.value.same_as(seen[0].value)


def test_variables_are_substituted_in_indices_too() -> None:
    before = store()
    (i,) = before.indices
    mapped = substitute(before, {i: i + 1})
    assert [str(index) for index in mapped.indices] == [f"{i} + 1"]
    assert [str(index) for index in mapped.value.a.indices] == [f"{i} + 1"]
    assert [str(index) for index in before.value.a.indices] == [str(i)], "the original stays as it is"


def test_what_a_callback_raises_comes_out() -> None:
    def fail(node: tirx.BufferStore) -> None:
        raise ValueError(f"no {node.buffer.name}")

    with pytest.raises(ValueError, match="no compute"):
        structural_map(store(), (tirx.BufferStore, fail))


def test_callbacks_that_raise_do_not_corrupt_memory() -> None:
    """tvm-ffi 0.1.14 frees twice what callbacks before the one that raised have put in: seen as an abort in malloc."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{FAILING}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


class Unknown(Exception):
    """One of which tvm-ffi does not know."""


def test_what_a_callback_raises_keeps_its_type() -> None:
    """It came out as a RuntimeError."""

    def fail(node: tirx.BufferStore) -> None:
        raise Unknown(node.buffer.name)

    with pytest.raises(Unknown, match="compute"):
        structural_map(store(), (tirx.BufferStore, fail))


def test_a_function_in_which_nothing_is_replaced_is_not_made_anew() -> None:
    a = te.placeholder((4,), name="a")
    func = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0)])
    assert mapped_body(func, (tirx.BufferStore, lambda node: node)).same_as(func)
    doubled = mapped_body(func, (tirx.FloatImm, lambda node: tirx.FloatImm("float32", 2 * node.value)))
    assert not doubled.same_as(func)
    assert "2.0" in doubled.script()
