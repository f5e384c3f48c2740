"""What the importer makes of calls, and what runs it.

In: calls of ops. Out: :class:`KnownOps`: signatures as the importer makes them, each with what has run it. What can't
be run is kept with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax

from eqsat_layout.errors import ILL_TYPED, EqsatError
from eqsat_layout.graph.borders import Part
from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.importer import import_module
from eqsat_layout.soundness.oracle.tir_interpreter import Interpreter
from eqsat_layout.soundness.oracle.tir_values import Masked
from eqsat_layout.soundness.rules.runners import LegalisedOp, RunnableOp, build_call, sorts
from eqsat_layout.soundness.rules.schema import OpCall

IS_PART = "it is a view, a pad or a crop"
_MOST_WORK = 100_000
"""Expressions that one run may evaluate: some 0.1 s. A larger op is none for models, in which it is run hundreds of
times. Counted, not timed: every machine has the same vocabularies."""


@lru_cache(4096)
def unusable(call: OpCall) -> str:
    """Why a call is none of an op of its name that can be run; empty if it is."""
    known = _known_ops([call], (call.name,))
    return "" if known.signatures else "; ".join(known.refused.values()) or IS_PART


def stays_inside(call: OpCall) -> bool:
    """Whether it is a view, or the reference interpreter runs it, which lets no index out of a tensor."""
    return unusable(call) in ("", IS_PART)


@lru_cache(4096)
def part_of(call: OpCall) -> Part | None:
    """The view, pad or crop that a call is; None if it is none, or several."""
    parts = [part for signature in import_module(call.module()).signatures.values() for part in signature.parts]
    return parts[0] if len(parts) == 1 else None


@dataclass
class KnownOps:
    """``refused``: names of ops that a call of could not be run, with the reason."""

    signatures: dict[str, Signature] = field(default_factory=dict)
    interpreters: dict[str, RunnableOp] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    attributes: dict[OpCall, str] = field(default_factory=dict)

    def varied(self) -> dict[str, int]:
        """How many choices of attributes there are at most on the same operands, of each op with attributes."""
        found: dict[str, dict[Any, set[str]]] = {}
        for call, key in self.attributes.items():
            if call.attributes:
                found.setdefault(call.name, {}).setdefault(call.operands, set()).add(key)
        return {name: max(len(keys) for keys in choices.values()) for name, choices in found.items()}


@lru_cache(64)
def known_ops(calls: tuple[OpCall, ...], wanted: frozenset[str] = frozenset()) -> KnownOps:
    """What the importer makes of the calls; views, pads and crops are left to the vocabulary's parts.

    ``wanted``: names of those that are built where they have no TIR. Of the same calls it is the same: not to be
    changed.
    """
    return _known_ops(calls, wanted)


def _known_ops(calls: Sequence[OpCall], wanted: Collection[str]) -> KnownOps:
    builder = relax.BlockBuilder()
    rows = [call.variables for call in calls]
    with builder.function("main", [variable for row in rows for variable in row]):
        with builder.dataflow():
            results = [builder.emit(call.build(*row)) for call, row in zip(calls, rows, strict=True)]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    program = import_module(builder.finalize())
    made = {node.var: node.signature for graph in program.graphs for node in graph.nodes if node.kind == "op"}
    found = KnownOps()
    called = {made.get(result): call for call, result in zip(calls, results, strict=True) if call.name in wanted}
    for key in dict.fromkeys(made.values()):
        signature = program.signatures[key]
        if signature.parts or None in (*signature.operands, *signature.results):
            continue
        why = run_once(signature, called.get(key), found.interpreters)
        if why:
            found.refused[signature.name] = why
        else:
            found.signatures[key] = signature
    for call, result in zip(calls, results, strict=True):
        key = made.get(result, "")
        if call.name and key in found.signatures:
            found.attributes[call] = key
    return found


def run_once(signature: Signature, call: OpCall | None, interpreters: dict[str, RunnableOp]) -> str:
    """Why the op can't be run; empty if it can, and then its interpreter is kept."""
    operands = [np.zeros((1, *map(int, ty.shape)), ty.dtype) for ty in signature.operands if ty is not None]
    types = [(tuple(map(int, ty.shape)), ty.dtype) for ty in signature.results if ty is not None]
    why = "it has no TIR"
    for make in _runners(signature, call):
        try:
            runner = make()
            before = runner.work
            found = runner.run([Masked.of(array) for array in operands])
        except (EqsatError, *ILL_TYPED) as error:  # operations that NumPy has not, extents below 0
            why = f"it can't be evaluated: {error}"
        else:
            if runner.work - before > _MOST_WORK:
                return "it takes too long to be evaluated; smaller calls of it may not"
            if [(tuple(map(int, m.values.shape[1:])), str(m.values.dtype)) for m in found] == types:
                interpreters[signature.key] = runner
                return ""
            return "what evaluates it gives another type than Relax has for it"
    return why


@lru_cache(1024)
def _interpreter_of(func: tvm_ffi.StructuralKey) -> Interpreter:
    """One for all vocabularies: compiling a function takes far longer than running it on tensors of this size."""
    return Interpreter(func.key)


def _runners(signature: Signature, call: OpCall | None) -> Iterator[Callable[[], RunnableOp]]:
    """What may run an op, the strictest first."""
    if signature.func is not None:
        yield partial(_interpreter_of, tvm_ffi.StructuralKey(signature.func.without_attr("global_symbol")))
    if signature.func is None and call is not None:
        yield partial(LegalisedOp.of, call)
    if call is not None and len(call.operands) == 1 and (signature.func is None or sorts(signature.func)):
        yield partial(build_call, call)
