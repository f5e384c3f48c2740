"""Kernels of files read and write within their buffers, whatever they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import eqsat_layout
from eqsat_layout.readers.guards.bounds import with_accesses_in_bounds
from eqsat_layout.readers.modules import FileError, read_module
from eqsat_layout.tir.structural import nodes_of

TEXT = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def kernel(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("last"):
                vi = T.axis.spatial(4, i)
                b[PLACE] = a[vi] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        return R.call_tir(cls.kernel, (x,), out_ty=R.Tensor((4,), "float32"))
"""


def read(folder: Path, place: str) -> Any:
    (folder / "net.py").write_text(TEXT.replace("PLACE", place))
    return read_module(folder / "net.py")


def has_condition(mod: Any) -> bool:
    return bool(nodes_of(mod["kernel"].body, tirx.IfThenElse))


@pytest.mark.parametrize("place", ["vi + 3", "vi * 1000000 + 3", "3 - vi * 2", "T.Cast('int32', a[vi])"])
def test_a_write_that_may_be_elsewhere_is_looked_at(tmp_path: Path, place: str) -> None:
    assert has_condition(read(tmp_path, place))


@pytest.mark.parametrize("place", ["vi", "3 - vi", "(vi + 1) % 4"])
def test_a_write_within_its_buffer_stays_as_it_is(tmp_path: Path, place: str) -> None:
    assert not has_condition(read(tmp_path, place))


def test_what_is_written_elsewhere_is_not_written(tmp_path: Path) -> None:
    mod = read(tmp_path, "vi + 3")
    machine = relax.VirtualMachine(eqsat_layout.compile(mod, "llvm"), tvm.cpu())
    x = np.arange(4, dtype="float32")
    assert machine["main"](tvm.runtime.tensor(x)).numpy()[3] == 1


def test_a_block_whose_axis_is_out_of_its_range_is_not_done(tmp_path: Path) -> None:
    text = TEXT.replace("PLACE", "vi").replace("range(4)", "range(9)")
    (tmp_path / "net.py").write_text(text.replace("spatial(4, i)", "spatial(4, i * 3 - 6)"))
    machine = relax.VirtualMachine(eqsat_layout.compile(read_module(tmp_path / "net.py"), "llvm"), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(np.arange(4, dtype="float32"))).numpy()
    assert (got[0], got[3]) == (1, 4)


def test_an_axis_that_wraps_around_is_refused(tmp_path: Path) -> None:
    value = "(i * 1073741824 + i * 1073741824) // 1073741824 // 2"
    (tmp_path / "net.py").write_text(TEXT.replace("PLACE", "vi").replace("(4, i)", f"(4, {value})"))
    with pytest.raises(FileError, match="computes an index beyond 32 bits"):
        read_module(tmp_path / "net.py")


FAR = "a[vi * 100000000]"


@pytest.mark.parametrize(
    "value",
    [
        FAR,
        "a[-100000000 - vi]",
        f"T.if_then_else(a[vi] > T.float32(0), {FAR}, T.float32(0))",
        f"T.if_then_else(vi < 1, T.float32(0), {FAR})",
        f"T.Select(vi < 1, {FAR}, T.float32(0))",
        "a[(vi * 1073741824 + vi * 1073741824) // 1073741824 // 2]",
    ],
)
def test_a_read_that_may_be_elsewhere_takes_what_is_nearest(tmp_path: Path, value: str) -> None:
    """The process ended."""
    (tmp_path / "net.py").write_text(TEXT.replace("PLACE", "vi").replace("a[vi] + T.float32(1)", value))
    mod = read_module(tmp_path / "net.py")
    assert nodes_of(mod["kernel"].body, tirx.Min)
    if value == FAR:
        machine = relax.VirtualMachine(eqsat_layout.compile(mod, "llvm"), tvm.cpu())
        assert list(machine["main"](tvm.runtime.tensor(np.arange(4, dtype="float32"))).numpy()) == [0, 3, 3, 3]


@pytest.mark.parametrize(
    "value",
    [
        "a[3 - vi]",
        "T.if_then_else(1 <= vi and vi < 4, a[vi - 1], T.float32(0))",
        "T.if_then_else(vi < 1, a[vi], a[vi - 1])",
    ],
)
def test_a_read_within_its_buffer_stays_as_it_is(tmp_path: Path, value: str) -> None:
    (tmp_path / "net.py").write_text(TEXT.replace("PLACE", "vi").replace("a[vi] + T.float32(1)", value))
    assert not nodes_of(read_module(tmp_path / "net.py")["kernel"].body, tirx.Min)


def test_steps_of_an_open_number_counted_back_stay_as_they_are() -> None:
    """Recurrences that go back over open steps looked at each place that they read."""
    count = tirx.Var("count", "int64")
    x = te.placeholder((count, 4), "float32", "x")
    kernel = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[count - 1 - i, j])])
    mod = tvm.IRModule({"kernel": kernel})
    assert with_accesses_in_bounds(mod).same_as(mod)


def test_a_vector_that_may_be_read_elsewhere_is_refused(tmp_path: Path) -> None:
    text = TEXT.replace("b[PLACE] = a[vi] + T.float32(1)", "b[T.Ramp(0, 1, 4)] = a[T.Ramp(100000000, 1, 4)]")
    (tmp_path / "net.py").write_text(text)
    with pytest.raises(FileError, match="may read beyond a"):
        read_module(tmp_path / "net.py")
