"""All calls of the PrimFuncs of a module, where they are known.

In: a Relax module. Out: by PrimFunc every ``call_tir`` and ``call_tir_inplace`` of it; not of those that are reached
in another way, or by anybody from outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import relax, tirx

from eqsat_layout.graph.public_names import is_public

_CALL_TIR: Final = tvm.ir.Op.get("relax.call_tir")
CALL_TIR_INPLACE: Final = tvm.ir.Op.get("relax.call_tir_inplace")


def all_calls(mod: tvm.IRModule) -> Iterator[tuple[Any, list[Any]]]:
    """Private PrimFuncs by their variables, and the calls of each."""
    calls: dict[Any, list[Any]] = {}
    mentions: Counter[Any] = Counter()

    def add(call: Any) -> None:
        if is_tir_call(call) and isinstance(call.args[1], relax.Tuple):
            calls.setdefault(call.args[0], []).append(call)

    def mention(var: Any) -> None:
        mentions[var] += 1

    for function in mod.functions.values():
        tvm_ffi.structural_walk(function, [(tvm.ir.Call, add), (tvm.ir.GlobalVar, mention)])
    for callee, own in calls.items():
        if mentions[callee] == len(own) and _is_private(mod[callee]):
            yield callee, own


def is_tir_call(value: Any) -> bool:
    """A call of a PrimFunc, which may write into one of its operands."""
    return isinstance(value, tvm.ir.Call) and value.op in (_CALL_TIR, CALL_TIR_INPLACE)


def arguments(call: Any) -> Sequence[Any]:
    """Those of a ``call_tir``."""
    return list(call.args[1].fields)


def _is_private(function: Any) -> bool:
    return isinstance(function, tirx.PrimFunc) and not is_public(function)
