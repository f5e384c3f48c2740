"""Ops that TIR's expressions call: choices by a condition, and ops of our own.

In: a node, or a name. Out: whether it is such a call, or the op.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import s_tir, tirx

from eqsat_layout.tir.structural import nodes_of

OF_BITS: Final = ("tirx.reinterpret", "tirx.nextafter")
"""Ops whose results depend on the type of their operands."""

_OWN: Final = "eqsat_layout."
"""The room of ops of our own."""


def is_call(node: Any, name: str) -> bool:
    """A call of the op of that name."""
    return isinstance(node, tvm.ir.Call) and str(getattr(node.op, "name", "")) == name


def short_name(call: Any) -> str:
    """What an op is called in its room, ``exp`` of ``prim.exp``; empty where no op is called."""
    return str(getattr(getattr(call, "op", None), "name", "")).rpartition(".")[2]


def is_choice(node: Any) -> bool:
    """A call that gives one of two values, and evaluates no other; ``Select`` evaluates both and is no call."""
    return is_call(node, "prim.if_then_else")


def is_zero(value: Any) -> bool:
    """The number 0."""
    return isinstance(value, tirx.FloatImm | tirx.IntImm) and value.value == 0


def conjuncts(condition: Any) -> list[Any]:
    """What must all hold for the condition."""
    return [*conjuncts(condition.a), *conjuncts(condition.b)] if isinstance(condition, tirx.And) else [condition]


def is_pure(call: Any) -> bool:
    """It gives a function of its arguments and does nothing else, as far as TVM says."""
    kind = call.op.get_attr("TCallEffectKind") if isinstance(call.op, tvm.ir.Op) else None
    return kind in (tirx.CallEffectKind.ExprAnnotation.value, tirx.CallEffectKind.Pure.value)


def calls_library(func: Any) -> bool:
    """Whether some block is but a call that does something to arrays, as a sort does: it says of no buffer so."""
    blocks = nodes_of(func.body, s_tir.SBlock)
    return any(isinstance(b.body, tirx.Evaluate) and not is_pure(b.body.value) for b in blocks if not b.writes)


def pure_op(name: str, description: str) -> Any:
    """A new op ``eqsat_layout.NAME`` that TVM knows nothing of but that it is pure, and the same for vectors."""
    full = f"{_OWN}{name}"
    tvm.get_global_func("ir.RegisterOp")(full, description)
    tvm.ir.register_op_attr(full, "TVectorizable", True)
    tvm.ir.register_op_attr(full, "TCallEffectKind", int(tirx.CallEffectKind.Pure.value))
    return tvm.ir.Op.get(full)


def is_pure_op(op: Any) -> bool:
    """It was made by :func:`pure_op`."""
    return str(op.name).startswith(_OWN)
