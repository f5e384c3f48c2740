"""Nodes on floats of 16 bits whose converters know float32 only.

In: a node's inputs and what converts it. Out: its result, of the types that ONNX says: where the converter fails with
such operands, or gives another type, it is given them as float32, and what it makes is rounded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import tvm
from tvm import ir, relax

from eqsat_layout.readers.layers.dtypes import as_dtype

_HALVES: Final = ("float16", "bfloat16")


def converted(builder: relax.BlockBuilder, op: str, opset: int, inputs: Any, convert: Callable[[Any], Any]) -> Any:
    """``convert(inputs)``."""
    wanted = _result_types(op, opset, inputs)
    if not wanted:
        return convert(inputs)
    try:
        made = _normal(builder, convert(inputs))
    except _OF_TYPES as error:
        try:
            made = _widened(builder, inputs, convert)
        except _OF_TYPES as later:  # which is not about the types then
            raise error from later
    else:
        if all(want in (None, have) for have, want in zip(_types(made), wanted, strict=False)):
            return made
        made = _widened(builder, inputs, convert)
    return _narrowed(builder, made, wanted)


_OF_TYPES: Final = (TypeError, ValueError, AssertionError, NotImplementedError, tvm.error.InternalError)
"""What converters and Relax raise of operands whose types they don't know."""


def _widened(builder: relax.BlockBuilder, inputs: Any, convert: Callable[[Any], Any]) -> Any:
    return _normal(builder, convert(type(inputs)([_wide(builder, one) for one in inputs])))


def _narrowed(builder: relax.BlockBuilder, wide: Any, wanted: list[str | None]) -> Any:
    is_tuple = isinstance(wide, ir.Expr) and isinstance(wide.ty, ir.TupleType)
    if not is_tuple:
        return _as(builder, wide, wanted[0])
    whole = wide if isinstance(wide, relax.Tuple) else builder.emit(wide)
    parts = [builder.normalize(relax.TupleGetItem(whole, at)) for at in range(len(wide.ty.fields))]
    types = [*wanted, *[None] * len(parts)]
    return relax.Tuple([_as(builder, one, dtype) for one, dtype in zip(parts, types, strict=False)])


def _result_types(op: str, opset: int, inputs: Sequence[Any]) -> list[str | None]:
    """Of results that are of one type with an operand of 16 bits, None for others; nothing without such operands."""
    defs = importlib.import_module("onnx").defs
    if not any(_dtype(one) in _HALVES for one in inputs) or not defs.has(op, opset):
        return []
    schema = defs.get_schema(op, opset)
    known = {
        port.type_str: dtype
        for port, one in zip(schema.inputs, inputs, strict=False)
        if (dtype := _dtype(one)) in _HALVES
    }
    return [known.get(port.type_str) for port in schema.outputs]


def _normal(builder: relax.BlockBuilder, made: Any) -> Any:
    return builder.normalize(made) if isinstance(made, relax.Call) else made


def _dtype(value: Any) -> str:
    ty = value.ty if isinstance(value, ir.Expr) else None
    return str(ty.dtype) if isinstance(ty, relax.TensorType) else ""


def _types(made: Any) -> list[str]:
    if isinstance(made, relax.Tuple):
        return [_dtype(one) for one in made.fields]
    if isinstance(made, ir.Expr) and isinstance(made.ty, ir.TupleType):
        return [str(one.dtype) for one in made.ty.fields]
    return [_dtype(made)]


def _wide(builder: relax.BlockBuilder, value: Any) -> Any:
    if _dtype(value) not in _HALVES:
        return value
    if isinstance(value, ir.GenericConst):  # which converters look into
        return relax.const(value.value.numpy().astype(np.float32), "float32")
    return builder.emit(relax.op.astype(value, "float32"))


def _as(builder: relax.BlockBuilder, value: Any, dtype: str | None) -> Any:
    if dtype is None or not isinstance(value, ir.Expr):
        return value
    return as_dtype(builder, value, dtype)
