"""What the importer makes of calls, and what runs it.

In: calls of ops. Out: :class:`KnownOps`: signatures as the importer makes them, each with what has run it. What can't
be run is kept with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax, tirx

from eqsat_layout.errors import ILL_TYPED, EqsatError
from eqsat_layout.graph.borders import Part
from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.importer import import_module
from eqsat_layout.graph.templates import settings_of
from eqsat_layout.soundness.oracle.tir_interpreter import Interpreter
from eqsat_layout.soundness.oracle.tir_values import Masked, OutOfBoundsError
from eqsat_layout.soundness.rules.bits import DEVICE_WORLD
from eqsat_layout.soundness.rules.runners import LegalisedOp, RunnableOp, build_call, is_sort
from eqsat_layout.soundness.rules.schema import LARGEST, LONG, OpCall
from eqsat_layout.tir.structural import nodes_of

IS_PART = "it is a view, a pad or a crop"
_MOST_WORK = 100_000
"""Expressions that one run may evaluate: some 0.1 s. A larger op is none for models, in which it is run hundreds of
times. Counted, not timed: every machine has the same vocabularies."""
_MOST_OF_LONG, _MOST_OF_LONGEST = 35_000, 225_000
"""The same with a long axis, so that reductions go over it: what goes step by step takes ten times as long for each.
And with one of the longest, which only rules about narrow floats have. Running sums go along both."""
_MOST_ELEMENTS = 200_000
"""Of a buffer that an op writes to, such as the scores of attention along a long axis: where each element goes is
worked out before a run, which no count of what that evaluates sees."""
_REMEMBERED = 4096
"""Calls of which it is kept what they are imported as."""


@lru_cache(4096)
def unusable(call: OpCall) -> str:
    """Why a call is none of an op of its name that can be run; empty if it is."""
    (imported,) = imports().of([call], (call.name,))
    return "" if imported.ops else "; ".join(imported.refused.values()) or IS_PART


def stays_inside(call: OpCall) -> bool:
    """Whether it is a view, or the reference interpreter runs it, which lets no index out of a tensor."""
    return unusable(call) in ("", IS_PART)


@lru_cache(4096)
def layout_part_of(call: OpCall) -> Part | None:
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


def known_ops(calls: Iterable[OpCall], wanted: Collection[str] = ()) -> KnownOps:
    """What the importer makes of the calls; views, pads and crops are left to the vocabulary's parts.

    ``wanted``: names of those that are built where they have no TIR.
    """
    found = KnownOps()
    keys: dict[Hashable, str] = {}
    calls = list(calls)
    for call, imported in zip(calls, imports().of(calls, wanted), strict=True):
        found.refused.update(imported.refused)
        for number, (signature, runner) in enumerate(imported.ops):
            key = keys.get(imported.identities[number])
            if key is None:
                key = keys[imported.identities[number]] = f"{signature.name}#{len(keys)}"
                found.signatures[key] = replace(signature, key=key)
                found.interpreters[key] = runner
            if call.name and number == imported.result:
                found.attributes[call] = key
    return found


def import_together(calls: Iterable[OpCall]) -> None:
    """Takes calls that may be asked for one by one afterwards: an import of many takes a third of the time of many
    imports."""
    calls = list(calls)
    imports().of(calls, {call.name for call in calls})


@dataclass(frozen=True)
class ImportedCall:
    """One call: the ops that it is, with what runs them. ``identities`` are equal for ops that do the same, ``result``
    is the number of the op that makes its result, if that can be run."""

    ops: tuple[tuple[Signature, RunnableOp], ...]
    identities: tuple[Hashable, ...]
    result: int | None
    refused: Mapping[str, str]


class Imports:
    """Calls that were imported in this process, the newest of them: most vocabularies have those of others."""

    def __init__(self) -> None:
        self._known: dict[tuple[OpCall, bool], ImportedCall] = {}

    def of(self, calls: Sequence[OpCall], wanted: Collection[str]) -> list[ImportedCall]:
        """Each call as it is imported; those that are new in one go."""
        keys = [(call, call.name in wanted) for call in calls]
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        self._known.update(zip(new, _imported(new), strict=True))
        found = [self._known[key] for key in keys]
        for key in list(self._known)[: max(0, len(self._known) - _REMEMBERED)]:
            del self._known[key]
        return found


@cache
def imports() -> Imports:
    """Those of this process."""
    return Imports()


def _imported(calls: Sequence[tuple[OpCall, bool]]) -> list[ImportedCall]:
    """``calls``: each with whether it is wanted."""
    if not calls:
        return []
    builder = relax.BlockBuilder()
    rows = [call.variables for call, _ in calls]
    with builder.function("main", [variable for row in rows for variable in row]):
        with builder.dataflow():
            results = [builder.emit(call.build(*row)) for (call, _), row in zip(calls, rows, strict=True)]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    mod = builder.finalize()
    program = import_module(mod)
    made = {node.var: node.signature for graph in program.graphs for node in graph.nodes if node.kind == "op"}
    bound = iter(binding.var for block in mod["main"].body.blocks for binding in block.bindings)
    found = []
    for (call, is_wanted), result in zip(calls, results, strict=True):
        own = dict.fromkeys(made[var] for var in _until(bound, result) if var in made)
        found.append(_run(call, [program.signatures[key] for key in own], made.get(result), is_wanted=is_wanted))
    return found


@lru_cache(4096)
def _is_op_of_unknown_sizes(call: OpCall) -> bool:
    """Whether a call that is a view, a pad or a crop is an op of its name in programs whose sizes are not known: rules
    find it there, with the attributes that were written."""
    sizes: dict[int, Any] = {1: 1}
    shapes = [[sizes.setdefault(int(e), tirx.Var(f"n{e}", "int64")) for e in ty.shape] for ty in call.operands]
    types = [relax.TensorType(shape, ty.dtype) for shape, ty in zip(shapes, call.operands, strict=True)]
    builder = relax.BlockBuilder()
    variables = [relax.Var(f"p{i}", ty) for i, ty in enumerate(types)]
    try:
        with builder.function("main", variables):
            with builder.dataflow():
                output = builder.emit_output(call.build(*variables))
            builder.emit_func_output(output)
        program = import_module(builder.finalize())
    except (EqsatError, *ILL_TYPED):
        return False
    return any(s.name == call.name and not s.parts for s in program.signatures.values())


def _until(bound: Iterator[Any], last: Any) -> Iterator[Any]:
    """What is bound up to that variable, which a call on its own may not be: then nothing is."""
    for var in bound:
        yield var
        if var.same_as(last):
            return


def _run(call: OpCall, signatures: Sequence[Signature], result: str | None, *, is_wanted: bool) -> ImportedCall:
    ops: list[tuple[Signature, RunnableOp]] = []
    refused: dict[str, str] = {}
    for signature in signatures:
        if signature.parts and is_wanted and signature.key == result and _is_op_of_unknown_sizes(call):
            signature = replace(signature, parts=())
        if signature.parts or None in (*signature.operands, *signature.results):
            continue
        runners: dict[str, RunnableOp] = {}
        why = why_not_run(signature, call if is_wanted and signature.key == result else None, runners)
        if why:
            refused[signature.name] = why
        else:
            ops.append((signature, runners[signature.key]))
    number = next((number for number, (signature, _) in enumerate(ops) if signature.key == result), None)
    return ImportedCall(tuple(ops), tuple(_identity(call, signature) for signature, _ in ops), number, refused)


def _identity(call: OpCall, signature: Signature) -> Hashable:
    written = signature.template
    if written.op.name == "relax.call_tir":
        return call, signature.name
    return signature.name, settings_of(written), signature.operands, signature.results


def why_not_run(signature: Signature, call: OpCall | None, interpreters: dict[str, RunnableOp]) -> str:
    """Why the op can't be run; empty if it can, and then its interpreter is kept."""
    operands = zeros_of(signature)
    types = [(tuple(map(int, ty.shape)), ty.dtype) for ty in signature.results if ty is not None]
    why = "it has no TIR"
    for make in _runners(signature, call):
        try:
            runner, most = make(), _most_work(max((one.values.size for one in operands), default=0))
            if _most_elements(signature, runner) > _MOST_ELEMENTS:
                return "it takes too long to be evaluated; smaller calls of it may not"
            before = runner.work
            found = _bounded_run(runner, operands, most)
        except OutOfBoundsError as error:
            return f"it can't be evaluated: {error}"  # nor is it built: that writes beside its arrays
        except (EqsatError, *ILL_TYPED) as error:  # operations that NumPy has not, extents below 0
            why = f"it can't be evaluated: {error}"
        else:
            if runner.work - before > most:
                return "it takes too long to be evaluated; smaller calls of it may not"
            if [(tuple(map(int, m.values.shape[1:])), str(m.values.dtype)) for m in found] == types:
                interpreters[signature.key] = runner
                return ""
            return "what evaluates it gives another type than Relax has for it"
    return why


def primfuncs_of(signature: Signature, runner: RunnableOp) -> list[tirx.PrimFunc]:
    """The TIR that an op is, or is legalised to."""
    funcs = runner.mod.functions.values() if isinstance(runner, LegalisedOp) else [signature.func]
    return [func for func in funcs if isinstance(func, tirx.PrimFunc)]


def _most_elements(signature: Signature, runner: RunnableOp) -> int:
    """Of the largest buffer that its TIR writes to, as far as sizes are known."""
    stores = (s for kernel in primfuncs_of(signature, runner) for s in nodes_of(kernel.body, tirx.BufferStore))
    shapes = [[int(e) for e in store.buffer.shape if isinstance(e, tirx.IntImm)] for store in stores]
    return max(map(math.prod, shapes), default=0)


def zeros_of(signature: Signature) -> list[Masked]:
    """Operands of an op in one world."""
    types = [ty for ty in signature.operands if ty is not None]
    return [Masked.of(np.zeros((1, *map(int, ty.shape)), ty.dtype)) for ty in types]


def _bounded_run(runner: RunnableOp, operands: Sequence[Masked], most_work: int) -> Sequence[Masked]:
    """What an op gives; of TIR that takes far longer an error, as soon as that is known."""
    if not isinstance(runner, Interpreter):
        return runner.run(operands)
    runner.most_work = 2 * most_work
    try:
        return runner.run(operands)
    finally:
        runner.most_work = math.inf


def _most_work(size: int) -> int:
    """Expressions that one run may evaluate of an op on so many elements."""
    if size <= LARGEST:
        return _MOST_WORK
    return _MOST_OF_LONG if size <= LONG else _MOST_OF_LONGEST


@lru_cache(1024)
def _interpreter_of(func: tvm_ffi.StructuralKey) -> Interpreter:
    """One for all vocabularies: compiling a function takes far longer than running it on tensors of this size."""
    return Interpreter(func.key, DEVICE_WORLD)


def _runners(signature: Signature, call: OpCall | None) -> Iterator[Callable[[], RunnableOp]]:
    """What may run an op, the strictest first."""
    if signature.func is not None:
        yield partial(_interpreter_of, tvm_ffi.StructuralKey(signature.func.without_attr("global_symbol")))
    if signature.func is None and call is not None:
        yield partial(LegalisedOp.of, call)
    if call is not None and len(call.operands) == 1 and (signature.func is None or is_sort(signature.func)):
        yield partial(build_call, call)
