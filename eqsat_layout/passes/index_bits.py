"""Narrow indices: TVM's ``NarrowDataType`` for PrimFuncs that have a ``Let`` of an integer.

In: PrimFuncs. Out: the same, with indices of fewer bits where they fit. For a ``Let`` inside of an expression, TVM
computes one range of the variable before it has seen the value and another one afterwards, and fails on the difference.
So the values are hidden from the pass, which then assumes nothing of them.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, tirx

from eqsat_layout.tir.intrinsics import is_call, pure_op
from eqsat_layout.tir.structural import body_pass

_VALUE = pure_op("named_value", "an integer that has a name")


def indices_in_bits(bits: int) -> Any:
    """A pass, for where buffers are flat."""
    hide = body_pass("HideNamed", (tirx.Let, _hidden))
    reveal = body_pass("RevealNamed", (ir.Call, _revealed))
    return tvm.transform.Sequential([hide, tirx.transform.NarrowDataType(bits), reveal])


def _hidden(let: Any) -> Any:
    if not str(let.value.ty).startswith(("int", "uint")):
        return let
    return tirx.Let(let.var, ir.Call(_VALUE, [let.value], ret_ty=let.value.ty), let.body)


def _revealed(call: Any) -> Any:
    return call.args[0] if is_call(call, str(_VALUE.name)) else call
