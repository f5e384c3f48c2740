"""Narrow indices: TVM's ``NarrowDataType``, which is told nothing of what it gets wrong.

In: PrimFuncs. Out: the same, with indices of fewer bits where they fit. For a ``Let`` inside of an expression, TVM
computes one range of the variable before it has seen the value and another one afterwards, and fails on the difference;
a signed integer that becomes an unsigned one is for TVM where it was, but never below 0. So both are hidden from the
pass, which then assumes nothing of them.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import ir, tirx

from eqsat_layout.tir.intrinsics import is_call, pure_op
from eqsat_layout.tir.structural import body_pass

_VALUE = pure_op("named_value", "an integer that has a name or another sign")


def indices_in_bits(bits: int) -> Any:
    """A pass, for where buffers are flat."""
    hide = body_pass("HideNamed", *_HIDDEN)
    reveal = body_pass("RevealNamed", (ir.Call, _revealed))
    return tvm.transform.Sequential([hide, tirx.transform.NarrowDataType(bits), reveal])


def _hidden(let: Any) -> Any:
    if not str(let.value.ty).startswith(("int", "uint")):
        return let
    return tirx.Let(let.var, _apart(let.value), let.body)


def _hidden_sign(cast: Any) -> Any:
    is_turned = str(cast.ty).startswith("uint") and str(cast.value.ty).startswith("int")
    return _apart(cast) if is_turned else cast


def _apart(value: Any) -> Any:
    return ir.Call(_VALUE, [value], ret_ty=value.ty)


def _revealed(call: Any) -> Any:
    return call.args[0] if is_call(call, str(_VALUE.name)) else call


_HIDDEN: Final = ((tirx.Let, _hidden), (tirx.Cast, _hidden_sign))
