"""Other engines as they run a network on a device with images: their memory, layout, what they make one kernel of.

In: nothing. Out: :data:`ENGINES`. Each is a policy of memories inside our planner (:mod:`eqsat_layout.targets.opencl.
policies`) and a rule that says which ops become one kernel, read off the engine's source. Where a rule can't be said
exactly, the engine gets the better of it: normalisations, GELU, softmax and SiLU are one kernel here, and a tensor that
several readers need at once may stay in registers, which none of them does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import tvm
from tvm import ir, relax, tirx

from eqsat_layout.targets.opencl.images import NHWC, WEIGHT
from eqsat_layout.targets.opencl.policies import PER_DEVICE, Policy

_ELEMENTWISE, _BROADCAST, _ANCHOR, _OPAQUE = 0, 1, 4, 8
"""TVM's numbers for what FuseOps may do with a PrimFunc; an anchor takes elementwise ops that follow it."""


@dataclass(frozen=True)
class Engine:
    """``pattern``: of a PrimFunc, by its name, what TVM has found of it, and whether it reads two tensors that are no
    constants; what FuseOps is told of it."""

    policy: Policy
    pattern: Callable[[str, int, bool], int]

    def annotated(self, mod: tvm.IRModule) -> tvm.IRModule:
        """What is said of PrimFuncs, as the engine would."""
        readers = _data_operands(mod)
        functions = {}
        for var, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc):
                known = int(func.attrs["op_pattern"])
                name = re.sub(r"(_relaid)?\d*$", "", str(var.name_hint)).removeprefix("nn_")
                told = self.pattern(name, known, readers.get(str(var.name_hint), 0) > 1)
                func = func.with_attr("op_pattern", max(told, _OPAQUE if known >= _OPAQUE else 0))
            functions[var] = func
        return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _data_operands(mod: tvm.IRModule) -> dict[str, int]:
    """By PrimFunc the most tensors that a call gives it and that are no constants."""
    found: dict[str, int] = {}
    for _, func in mod.functions_items():
        if isinstance(func, relax.Function):
            for block in func.body.blocks:
                for binding in block.bindings:
                    call = binding.value
                    if isinstance(call, relax.Call) and call.op == ir.Op.get("relax.call_tir"):
                        name = str(call.args[0].name_hint)
                        data = [field for field in call.args[1].fields if not isinstance(field, ir.GenericConst)]
                        found[name] = max(found.get(name, 0), len(data))
    return found


def _mnn(name: str, known: int, of_two: bool) -> int:
    """Biases, scales and (leaky) ReLU are part of the convolution before, ReLU of a binary op too; all else is alone.

    Source: tools/converter/source/optimizer in github.com/alibaba/MNN: merge/ConvBiasAdd, and in postconvert
    MergeBNToConvolution, MergeScaleToConvolution, MergeReluToConvolution, MergeRelu6ToConvolution, MergeReluToBinary.
    """
    if known == _ANCHOR:
        return _ANCHOR
    if known <= _BROADCAST and of_two:
        return _ANCHOR
    is_merged = name in (
        "relu",
        "leakyrelu",
        "clip",
        "add",
        "multiply",
        "subtract",
        "layout_rewrite",
        "layout_transform",
    )
    return known if known <= _BROADCAST and is_merged else _OPAQUE


def _tflite(_name: str, known: int, _of_two: bool) -> int:
    """Elementwise ops, of one operand or two, are part of whatever is before; nothing else is joined.

    Source: MergeNodes in tensorflow/lite/delegates/gpu/common/gpu_model.cc (github.com/tensorflow/tensorflow), which
    asks that an op is linkable: only those of tasks/elementwise.cc are, and ReLU, PReLU, Add.
    """
    return known if known <= _BROADCAST else _ANCHOR


_IN_IMAGES: Final[Mapping[str, tuple[str, ...]]] = {
    name: (NHWC, WEIGHT) for name in ("adreno5xx", "adreno6xx", "mali", "powervr", "pocl")
}
"""MNN's images have blocks of channels beside columns (NC4HW4: source/backend/opencl/core/ImageBufferConvertor)."""

ENGINES: Final = (
    Engine(Policy("MNN", _IN_IMAGES), _mnn),
    Engine(Policy("TFLite", PER_DEVICE.scopes), _tflite),
)
