"""Rules of the user's on tensors in images: formats that no image holds, ops that are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from compare import assert_close
from programs import ops, program
from targets.device_cases import SIZE, chain
from targets.opencl.running import ADRENO, compiled, results
from tvm import relax
from tvm.relax import op

import eqsat_layout
from eqsat_layout.maps import GLOBAL
from eqsat_layout.notes import Notes
from eqsat_layout.planning.pipeline import choose
from eqsat_layout.targets.lowering import prepared
from eqsat_layout.targets.opencl.images import TEXTURE
from eqsat_layout.targets.opencl.policies import ALL_IMAGES
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.registry import target

LIKE_OPERAND = """; casts in the format of what they read
(rule ((= y (Op k (Arg x (End)))) (is k "relax.astype") (want x f)) ((want y f)) :ruleset flow :name "like operand")
"""

SILU = """; x * sigmoid(x) == silu(x)
(rule ((= y (Op k (Arg x (Arg s (End))))) (is k "relax.multiply") (= s (Op j (Arg x (End)))) (is j "relax.sigmoid"))
      ((becomes y (Make "relax.nn.silu" "" (Arg x (End))))) :ruleset logical :name "silu")
"""


def own_target() -> OpenClTarget:
    found = target(ADRENO)
    assert isinstance(found, OpenClTarget)
    return found


def test_what_a_rule_wants_where_no_image_holds_it_is_no_buffer(tmp_path: Path) -> None:
    """Integers in the image of the floats that they are cast from, and their views."""

    def body(builder: Any, x: Any) -> Any:
        cast = builder.emit(op.astype(chain(builder, x), "int32"))
        return builder.emit(op.reshape(cast, (8, 4, 14, 14)))

    rules = tmp_path / "mine.egg"
    rules.write_text(LIKE_OPERAND, encoding="utf-8")
    own = own_target()
    options = {"rules": [rules], "cost_model": ALL_IMAGES.costs(own)}
    choice = choose(prepared(program(body, SIZE), notes=Notes()), own, options)
    (region,) = choice.regions
    formats, types = region.saturated.names.formats, region.selection.tensors.types
    number = region.selection.tensors.number
    wanted = [(types[number(y)], f) for y, f in region.saturated.tables.rows("want")]
    assert [f for ty, f in wanted if ty and ty.dtype == "int32" and formats[f].scope == TEXTURE], (
        "a rule wants it there"
    )
    for specs in (specs for own_class in region.selection.stores for specs in own_class):
        for tensor, name in specs:
            ty = types[tensor]
            assert ty is None or name not in formats or own.holds(ty, formats[name]) is None


def test_a_rule_makes_ops_of_what_lies_in_an_image(tmp_path: Path) -> None:
    """Values are of one type wherever they lie; nothing was made of a parameter that its type puts into an image."""
    rules = tmp_path / "mine.egg"
    rules.write_text(SILU, encoding="utf-8")
    images, buffers = (relax.VDevice(dict(ADRENO), 0, scope) for scope in (TEXTURE, GLOBAL))
    x = relax.Var("x", relax.TensorType((1, 8, 14, 14, 4), "float32", images))
    builder = relax.BlockBuilder()
    builder.get().update_global_info("vdevice", [images, buffers])
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.multiply(x, builder.emit(op.sigmoid(x))))
            result = builder.emit_output(op.to_vdevice(y, buffers))
        builder.emit_func_output(result)
    plan = eqsat_layout.plan(builder.get(), ADRENO, rules=[rules])
    assert plan.notes == ()
    assert ops(plan.module) == ["nn_silu_relaid"]
    data = np.random.default_rng(0).standard_normal((1, 8, 14, 14, 4)).astype("float32")
    (got,) = results(compiled(builder.get(), rules=[rules]), [data])
    assert_close(data / (1 + np.exp(-data)), got)
