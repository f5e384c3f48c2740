"""Kernels of files whose loops are to be written out for ever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.readers.modules import read_module
from eqsat_layout.tir.structural import nodes_of

TEXT = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def k(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in LOOP:
            with T.sblock("b"):
                v = T.axis.spatial(4, i % 4)
                T.reads(a[v])
                T.writes(b[v])
                T.sblock_attr(BLOCK)
                b[v] = a[v] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.k, (x,), out_ty=R.Tensor((4,), dtype="float32"))
            R.output(y)
        return y
"""


def read(folder: Path, loop: str, block: str = "{}") -> tvm.IRModule:
    path = folder / "kernel.py"
    path.write_text(TEXT.replace("LOOP", loop).replace("BLOCK", block), encoding="utf-8")
    return read_module(path)


@pytest.mark.parametrize(
    ("loop", "block"),
    [
        ("T.unroll(100000000)", "{}"),
        (
            'T.serial(100000000, annotations={"pragma_auto_unroll_max_step": 1 << 30, "pragma_unroll_explicit": 1})',
            "{}",
        ),
        ("T.serial(40)", '{"pragma_auto_unroll_max_step": 1073741824, "pragma_unroll_explicit": 1}'),
    ],
)
def test_they_are_loops_as_usual(tmp_path: Path, loop: str, block: str) -> None:
    """A line of text took all memory and ended the process."""
    mod = read(tmp_path, loop.replace("1 << 30", "1073741824"), block)
    assert all(one.kind == tirx.ForKind.SERIAL for one in nodes_of(mod["k"].body, tirx.For))
    assert "pragma" not in mod.script()
    x = np.arange(4, dtype="float32")
    executable = eqsat_layout.compile(mod)
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(result.numpy(), x + 1)


def test_nests_count_by_their_product(tmp_path: Path) -> None:
    path = tmp_path / "nest.py"
    outer = "for i in LOOP:\n            for j in T.unroll(400):\n"
    inner = outer + "                for l in T.unroll(400):\n                    "
    body = TEXT.replace("for i in LOOP:\n            ", inner).replace("LOOP", "T.unroll(4)").replace("BLOCK", "{}")
    head, _, rest = body.partition('with T.sblock("b"):\n')
    block, _, end = rest.partition("\n\n")
    path.write_text(
        f'{head}with T.sblock("b"):\n' + block.replace("    " * 4, "    " * 6) + f"\n\n{end}", encoding="utf-8"
    )
    loops = nodes_of(read_module(path)["k"].body, tirx.For)
    assert [int(one.kind) for one in loops] == [tirx.ForKind.SERIAL] * 3


def test_short_ones_stay(tmp_path: Path) -> None:
    (loop,) = nodes_of(read(tmp_path, "T.unroll(4)")["k"].body, tirx.For)
    assert loop.kind == tirx.ForKind.UNROLLED
