"""Puts lifted rewrites back where the plan keeps all of them, so that a call that gains nothing stays as it was.

In: steps, and signatures of which some are what is left of a PrimFunc without its rewrites. Out: steps in which the
whole PrimFunc is called again, wherever just its own rewrites stand around what is left of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat_layout.graph.graph import Lifted, Signature
from eqsat_layout.graph.steps import ConstantUse, Convert, Given, Operand, Run, Step, Steps
from eqsat_layout.maps import IndexMap


def put_back(steps: Steps, signatures: Mapping[str, Signature]) -> Steps:
    """``steps`` with whole calls again; stores keep their numbers."""
    if not any(isinstance(s, Run) and signatures[s.signature].lifted for s in steps.steps):
        return steps
    defined = {s.store: s for s in steps.steps}
    users: dict[int, list[Step | None]] = {}
    for step in steps.steps:
        for operand in _reads(step):
            if not isinstance(operand, ConstantUse):
                users.setdefault(operand, []).append(step)
    for goal in steps.goals:
        if not isinstance(goal, ConstantUse):
            users.setdefault(goal, []).append(None)
    dropped: set[int] = set()
    whole: dict[int, Run] = {}
    for step in steps.steps:
        lifted = signatures[step.signature].lifted if isinstance(step, Run) else None
        if isinstance(step, Run) and lifted is not None:
            found = _whole(step, lifted, defined, users)
            if found is not None:
                whole[step.store], gone = found
                dropped |= gone
    kept = [whole.get(s.store, s) for s in steps.steps if s.store not in dropped]
    return replace(steps, steps=kept)


def _whole(
    step: Run, lifted: Lifted, defined: Mapping[int, Step], users: Mapping[int, list[Step | None]]
) -> tuple[Run, set[int]] | None:
    """The whole call, and the stores that are no longer made."""
    if step.flow is not None and not all(f.is_row_major for f in (*step.flow.operands, *step.flow.results)):
        return None
    operands: list[Operand] = list(step.operands)
    gone: set[int] = set()
    for position, index_map in lifted.pre:
        operand = operands[position]
        made = None if isinstance(operand, ConstantUse) else defined.get(operand)
        if not isinstance(made, Convert) or buffer_map(made) != index_map or len(users[made.store]) != 1:
            return None
        operands[position] = made.source
        gone.add(made.store)
    store = step.store
    if lifted.post is not None:
        (user, *others) = users.get(store, [None])
        if others or not isinstance(user, Convert) or buffer_map(user) != lifted.post:
            return None
        gone.add(user.store)
        store = user.store
    return Run(store, lifted.whole, None, tuple(operands)), gone


def buffer_map(step: Convert) -> IndexMap | None:
    """The map from buffer to buffer, if the conversion is nothing else."""
    before, after = step.before, step.after
    if before.padding != after.padding or before.fill != after.fill or before.scope != after.scope:
        return None
    if before.separators or after.separators:
        return None
    inverse = before.index_map.inverse()
    return None if inverse is None else after.index_map.after(inverse)


def _reads(step: Step) -> tuple[Operand, ...]:
    if isinstance(step, Run):
        return step.operands
    return () if isinstance(step, Given) else (step.source,)
