"""Buffers that blocks inside of loops allocate, on PoCL."""

from __future__ import annotations

from typing import Any

from programs import program
from targets.opencl.running import check
from tvm import relax
from tvm.script import tirx as T


@T.prim_func(private=True, s_tir=True)
def steps(x: T.Buffer((8, 300), "float32"), y: T.Buffer((4, 8, 300), "float32")) -> None:
    made = T.sblock_alloc_buffer((8, 300))
    for t in range(4):
        with T.sblock("step"):
            vt = T.axis.opaque(4, t)
            T.reads(x[0:8, 0:300], y[0:4, 0:8, 0:300])
            T.writes(y[vt, 0:8, 0:300])
            for r in range(8):
                with T.sblock("row"):
                    vr = T.axis.spatial(8, r)
                    T.reads(x[vr, 0:300], y[0:4, vr, 0:300])
                    T.writes(made[vr, 0:300])
                    row = T.sblock_alloc_buffer((300,))
                    for i in range(300):
                        row[i] = x[vr, i] + T.if_then_else(vt > 0, y[vt - 1, vr, 299 - i], T.float32(0))
                    for i in range(1, 300):
                        row[i] = row[i] + row[i - 1] * T.float32(0.5)
                    for i in range(300):
                        made[vr, i] = row[i] * T.float32(0.25)
            for r, i in T.grid(8, 300):
                with T.sblock("each"):
                    vr, vi = T.axis.remap("SS", [r, i])
                    T.reads(made[vr, vi])
                    T.writes(y[vt, vr, vi])
                    y[vt, vr, vi] = made[vr, vi] + T.float32(1)


def test_a_large_buffer_in_an_ordered_loop_is_memory_of_the_device() -> None:
    """It was refused, and nothing said which kernel."""

    def body(builder: Any, x: Any) -> Any:
        func = builder.add_func(steps, "steps")
        return builder.emit(relax.call_tir(func, [x], relax.TensorType((4, 8, 300), "float32")))

    notes: list[str] = []
    made = check(program(body, (8, 300)), notes=notes)
    assert not [note for note in notes if "runs in one" in note]
    assert [launch.groups[0] for launch in made.plan.functions[0].launches] == [8, 10] * 4  # rows, then work groups
