"""The flow callbacks that a user registers, matched with the ops of a program.

In: callbacks by name, and signatures. Out: for each op that one speaks for, :class:`Spokesman`, which answers in place
of the analysis; and notes of the callbacks that can't be followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat_layout.errors import LayoutError, did_you_mean
from eqsat_layout.graph.graph import Signature
from eqsat_layout.maps import Format
from eqsat_layout.tir.callbacks import CALLBACK_ATTRIBUTE, Direction, FlowAsker, FlowCallback, FlowCallbacks
from eqsat_layout.tir.flow import Flow, complete


@dataclass(frozen=True)
class Spokesman:
    """The callback that speaks for one op, and the ``name`` that it is registered by."""

    signature: Signature
    name: str
    callback: FlowCallback

    def flows(self, fmt: Format, *, result: int | None, operand: int | None) -> tuple[Flow, ...]:
        """What the callback answers for ``fmt``, from the operand or else from the result, best first.

        ``fmt`` lies in flat memory: a callback speaks of index maps, and the target says in which memories the op reads
        and writes. It can't be asked about padded formats: ``()``. Raises :class:`LayoutError`, naming the op and the
        callback, for what is no answer.
        """
        computation = self.signature.computation
        if computation is None or fmt.is_padded:
            return ()
        direction: Direction = "backward" if operand is None else "forward"
        asker = FlowAsker(
            f"{self.signature.name}: flow callback {self.name!r}",
            self.callback,
            tuple(t.shape for t in self.signature.operands if t is not None),
            tuple(t.shape for t in self.signature.results if t is not None),
        )
        checked = asker.ask(direction, (result or 0) if operand is None else operand, fmt.index_map)
        return tuple(complete(computation, flow.operands, flow.results) for flow in checked)

    def why_not(self, fmt: Format) -> str:
        """Why there is no flow for ``fmt``, in words."""
        if fmt.is_padded:
            return f"its flow callback {self.name!r} is asked about unpadded layouts only"
        return f"its flow callback {self.name!r} gives none"


@dataclass(frozen=True)
class UserFlows:
    """Who speaks for which op, by the key of its signature, and what a user should know about it."""

    by_key: Mapping[str, Spokesman] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def flow_callbacks(flows: Mapping[str, FlowCallback] | None) -> FlowCallbacks | None:
    """The user's ``flows``, checked to be what they should be; None where nothing is registered."""
    if flows is not None and not isinstance(flows, Mapping):
        raise LayoutError(f"flows must be a dictionary of callbacks by name, got {flows!r}")
    return None if flows is None else FlowCallbacks(flows)


def user_flows(callbacks: FlowCallbacks | None, signatures: Mapping[str, Signature]) -> UserFlows:
    """Finds the callback of every op. :class:`LayoutError` for a PrimFunc that names one that is not registered."""
    notes: dict[str, None] = {}
    by_key: dict[str, Spokesman] = {}
    if callbacks is None:
        return UserFlows({}, tuple(dict.fromkeys(_without_callbacks(signatures))))
    unused = dict.fromkeys(callbacks.by_name)
    for signature in signatures.values():
        found = callbacks.named(signature.name, signature.func, signature.rule_name)
        if found is None:
            continue
        unused.pop(found[0], None)
        reason = _why_ignored(signature)
        if reason is None:
            by_key[signature.key] = Spokesman(signature, *found)
        else:
            notes[f"{signature.name}: its flow callback {found[0]!r} is ignored, because {reason}"] = None
    known = {name for s in signatures.values() for name in (s.name, s.rule_name)}
    for name in unused:
        near = did_you_mean(name, known)
        note = f"the flow callback {name!r} has nothing to speak for: no op that is read goes by this name; {near}"
        notes[note.rstrip("; ")] = None
    return UserFlows(by_key, tuple(notes))


def _without_callbacks(signatures: Mapping[str, Signature]) -> list[str]:
    named = [(s.name, s.func.attrs.get(CALLBACK_ATTRIBUTE)) for s in signatures.values() if _has_attributes(s)]
    return [
        f"{name}: the flow callback {str(callback)!r}, which its PrimFunc names, is ignored, because no flows are given"
        for name, callback in named
        if callback is not None
    ]


def _has_attributes(signature: Signature) -> bool:
    """It is a PrimFunc of the module: what TVM makes of an op names no callback."""
    is_own = signature.is_call_tir and signature.lowered is not None
    return is_own and signature.func.attrs is not None


def _why_ignored(signature: Signature) -> str | None:
    computation = signature.computation
    if computation is None:
        return "its TIR is not understood, so it can't be re-laid-out"
    if signature.frozen is not None:
        return "it is frozen, and frozen layouts are kept"
    if signature.parts:
        return "it only views, pads or crops, which every layout can be followed through without it"
    return None
