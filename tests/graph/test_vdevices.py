"""Modules that name virtual devices for ordinary memory."""

from __future__ import annotations

from tvm import relax, tirx
from tvm.relax import op
from tvm.relax.global_info import VDevice

import eqsat_layout
from eqsat_layout.graph.vdevices import with_vdevices


def test_what_is_newly_bound_lies_on_the_device_of_its_variable() -> None:
    """TVM's annotate_custom_scope: the rewrite had a type without the device, and the module was not well formed."""
    device = VDevice({"kind": "llvm"}, 0, "global")
    x = relax.Var("x", relax.TensorType((4, 6, 8), "float32", device))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            moved = builder.emit(op.permute_dims(x, [2, 0, 1]))
            output = builder.emit_output(op.permute_dims(builder.emit(op.nn.relu(moved)), [0, 2, 1]))
        builder.emit_func_output(output)
    mod = builder.get()
    mod.update_global_info("vdevice", [device])
    optimized = eqsat_layout.optimize(mod)
    assert optimized is not mod
    relax.analysis.well_formed(optimized)
    assert optimized["main"].body.body.ty.vdevice == device


def test_a_primfunc_of_handles_without_buffers_names_no_scope() -> None:
    """TVM's test_clip of ONNX: the results of a call were paired with buffers that are not there."""
    nothing = tirx.PrimFunc([tirx.Var(name, "handle") for name in "ab"], tirx.Evaluate(0))
    x, builder = relax.Var("x", relax.TensorType((4,), "float32")), relax.BlockBuilder()
    with builder.function("main", [x]):
        call = relax.call_tir(builder.add_func(nothing, "nothing"), [x], relax.TensorType((4,), "float32"))
        builder.emit_func_output(builder.emit(call))
    mod = builder.get()
    assert with_vdevices(mod, lambda scope: VDevice({"kind": "opencl"}, 0, scope)) is mod
