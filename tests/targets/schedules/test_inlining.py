"""Stages in the place of their readers' loads, as far as indices stay short."""

from __future__ import annotations

import tvm
from tvm import relax, tirx
from tvm.relax import op, transform

from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.inlining import inline_producers
from eqsat_layout.targets.schedules.stages import ROOT, new_schedule
from eqsat_layout.tir.structural import nodes_of


def test_indices_of_views_of_views_stay_short() -> None:
    """Ten reshapes with transposes between them took minutes, as one index with thousands of divisions."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 6, 5), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for shape in [(5, 4, 6), (2, 3, 20), (8, 3, 5), (4, 6, 5)] * 3:
                y = builder.emit(op.reshape(builder.emit(op.permute_dims(y, [2, 0, 1])), shape))
            y = builder.emit_output(builder.emit(op.nn.relu(y)))
        builder.emit_func_output(y)
    passes = [transform.LegalizeOps(), transform.AnnotateTIROpPattern(), transform.FuseOps(), transform.FuseTIR()]
    mod = tvm.transform.Sequential(passes)(builder.get())
    (func,) = [one for one in mod.functions.values() if isinstance(one, tirx.PrimFunc)]
    sch = inline_producers(new_schedule(func), lambda stage, readers: True)
    blocks = lookups.get_child_blocks(sch, lookups.get_sblock(sch, ROOT))
    divisions = [len(nodes_of(sch.get(block).body, tirx.FloorDiv, tirx.FloorMod)) for block in blocks]
    assert 1 < len(blocks) < 12
    assert max(divisions) < 1000
