"""Steps of random programs: what lies between ops, that is regions, tuples inside tuples, functions, symbolic sizes.

In: the function that is written, and a value. Out: what ``ops.py`` says of steps.
"""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.relax import op as R

from eqsat_layout.soundness.programs.ops_nn import CONVOLUTION_LAYOUTS
from eqsat_layout.soundness.programs.writer import FunctionWriter, Step, dtype_of, is_static, shape_of


def cut(w: FunctionWriter, x: Any) -> Any:
    """A ``match_cast``: no region holds it, and what stands behind it is in another one."""
    return w.cut(x)


def layer_twice(w: FunctionWriter, x: Any) -> Any:
    """A layer in two regions, which are the same but for their weights."""
    shape = shape_of(x)
    if len(shape) != 4 or not is_static(x) or dtype_of(x) != "float32" or math.prod(shape) * shape[1] > 5000:
        return None
    layout = w.choices.choice(CONVOLUTION_LAYOUTS[4])
    frozen = 100 if w.choices.chance(50) else 0
    for _ in range(2):
        weight = w.constant((shape[1], shape[1], 3, 3))
        made = w.emit(R.nn.conv2d(w.tame(x), weight, padding=1), grows=1)
        w.freeze("relax.nn.conv2d", [layout], percent=frozen)
        x = w.cut(made)
    return x


def packed(w: FunctionWriter, x: Any) -> Any:
    """Values in a tuple inside of a tuple, and one of them taken out again."""
    inner = w.emit(relax.Tuple([x, w.pick()]))
    outer = w.emit(relax.Tuple(w.choices.shuffled([inner, x])))
    place = next(i for i, ty in enumerate(outer.ty.fields) if isinstance(ty, relax.TupleType))
    pair = w.emit(relax.TupleGetItem(outer, place))
    return w.emit(relax.TupleGetItem(pair, w.choices.below(2)))


def symbolic_view(w: FunctionWriter, x: Any) -> Any:
    """The symbolic axis as one with its neighbour, ``n * 4``, or two of them again."""
    shape = shape_of(x)
    if not shape or isinstance(shape[0], int):
        return None
    head, rest = shape[0], shape[1:]
    if isinstance(head, tirx.Mul) and isinstance(head.b, tirx.IntImm):
        return w.emit(R.reshape(x, [head.a, int(head.b), *rest]), rough=False)
    if not rest or rest[0] == 1:
        return None
    return w.emit(R.reshape(x, [head * rest[0], *rest[1:]]), rough=False)


def call(w: FunctionWriter, x: Any) -> Any:
    """A call of another function: one that there is, or one that is written for the purpose."""
    if not is_static(x):
        return None
    fitting = [
        var
        for var, function in w.module.functions.items()
        if isinstance(function, relax.Function)
        and len(function.params) == 1
        and tvm_ffi.structural_equal(function.params[0].ty, x.ty)
    ]
    if fitting and w.choices.chance(60):
        callee = w.choices.choice(fitting)
    else:
        hidden = w.choices.chance(60)
        callee = FunctionWriter(w.module, "helper", [x.ty], depth=w.depth + 1, is_private=hidden).write(3)
    made = w.emit(relax.Call(callee, [x]), grows=2)
    return [value for value in w.parts(made) if isinstance(value.ty, relax.TensorType)]


STRUCTURE_KINDS: dict[Step, int] = {cut: 1, packed: 1, call: 2}
SYMBOLIC_KINDS: dict[Step, int] = {symbolic_view: 4}
LAYER_KINDS: dict[Step, int] = {layer_twice: 4}
