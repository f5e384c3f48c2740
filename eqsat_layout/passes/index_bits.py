"""Indices in fewer bits where they fit: TVM's ``NarrowDataType``, which stumbles over names of integers.

In: PrimFuncs. Out: the same, with indices of so many bits. Of a name that an expression gives to a part of itself TVM
finds one range before it reads the value of the name, and another one after, and takes this for a fault of its own. So
those values are hidden from it meanwhile: any number may be one.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, tirx

from eqsat_layout.tir.intrinsics import is_call, pure_op
from eqsat_layout.tir.structural import primfunc_pass, structural_map

_VALUE = pure_op("named_value", "an integer that has a name")


def indices_in_bits(bits: int) -> Any:
    """A pass, for where buffers are flat."""
    hide = primfunc_pass("HideNamed", lambda func: func.with_body(structural_map(func.body, (tirx.Let, _hidden))))
    reveal = primfunc_pass("RevealNamed", lambda func: func.with_body(structural_map(func.body, (ir.Call, _revealed))))
    return tvm.transform.Sequential([hide, tirx.transform.NarrowDataType(bits), reveal])


def _hidden(let: Any) -> Any:
    if not str(let.value.ty).startswith(("int", "uint")):
        return let
    return tirx.Let(let.var, ir.Call(_VALUE, [let.value], ret_ty=let.value.ty), let.body)


def _revealed(call: Any) -> Any:
    return call.args[0] if is_call(call, str(_VALUE.name)) else call
