"""Small constant matrices whose elements a kernel may know (targets room).

In: a Relax module whose ``call_tir`` calls pass constants. Out: the same, in which PrimFuncs that get one and the same
small matrix everywhere carry its elements, if many of these are zero: those of minimal filtering, for one. The operand
stays, for kernels that don't look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx

Elements = npt.NDArray[np.float32]

_KNOWN = "eqsat_layout.literals"
_LARGEST = 64  # elements
_ZEROS = 0.1  # of the elements, for that to be worth the trouble


def with_literals(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with small constants known to the PrimFuncs that get no others. The input is not changed."""
    found: dict[Any, dict[int, Elements | None]] = {}
    for function in mod.functions.values():
        for callee, args in _calls(function):
            known = found.setdefault(callee, {})
            for number, arg in enumerate(args):
                elements = _elements(arg)
                same = number not in known or _equal(known[number], elements)
                known[number] = elements if same else None
    functions = dict(mod.functions.items())
    for callee, known in found.items():
        functions[callee] = _attached(functions[callee], known)
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def knowing(func: Any, args: Sequence[Any]) -> Any:
    """``func``, which is called with ``args`` only, with small constants known to it."""
    return _attached(func, dict(enumerate(map(_elements, args))))


def literals_of(func: Any) -> list[tuple[Any, Elements]]:
    """Parameters of ``func`` (their buffers) whose elements are known."""
    known = func.attrs.get(_KNOWN, {}) if func.attrs else {}
    found: list[tuple[Any, Elements]] = []
    for number, values in known.items():
        buffer = func.params[int(number)]
        shape = [int(extent) for extent in buffer.shape]
        found.append((buffer, np.array([float(value) for value in values], "float32").reshape(shape)))
    return found


def _calls(function: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Callees of ``call_tir`` and what they get."""
    blocks = function.body.blocks if isinstance(getattr(function, "body", None), relax.SeqExpr) else ()
    for block in blocks:
        for binding in block.bindings:
            call = getattr(binding, "value", None)
            if isinstance(call, tvm.ir.Call) and call.op == tvm.ir.Op.get("relax.call_tir"):
                yield call.args[0], list(call.args[1].fields)


def _elements(arg: Any) -> Elements | None:
    """Those of a small matrix in float32 with many zeros; ``None`` for anything else."""
    if not isinstance(arg, tvm.ir.GenericConst) or not isinstance(arg.ty, relax.TensorType):
        return None
    data = arg.value
    if str(data.dtype) != "float32" or not 0 < np.prod(data.shape) <= _LARGEST:
        return None
    elements = np.asarray(data.numpy())
    return elements if np.mean(elements == 0) >= _ZEROS else None


def _equal(one: Elements | None, other: Elements | None) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)


def _attached(func: Any, known: dict[int, Elements | None]) -> Any:
    values = {str(n): [float(x) for x in e.flat] for n, e in known.items() if e is not None}
    return func.with_attr(_KNOWN, values) if values and isinstance(func, tirx.PrimFunc) else func
