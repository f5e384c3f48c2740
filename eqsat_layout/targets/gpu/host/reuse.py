"""Memories that several tensors use one after the other.

In: a host plan in which each tensor has a memory of its own. Out: the same with fewer: what a function is done with is
used again, buffers by whatever fits best, images by images of the same extents, zeros by zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from eqsat_layout.targets.gpu.host.plan import Allocation, HostFunction, HostPlan, Launch


def with_shared_memories(plan: HostPlan) -> HostPlan:
    """Inputs, constants, what the host reads and what several functions use keep theirs."""
    memories = list(plan.memories)
    places = list(range(len(memories)))
    uses = Counter(memory for one in plan.all_functions for memory in {m for n in one.launches for m in _used(n)})
    common = {memory for memory, count in uses.items() if count > 1}
    for function in plan.all_functions:
        _share(plan, function, common, memories, places)
    kept = sorted(set(places))
    numbers = {memory: number for number, memory in enumerate(kept)}
    new = [numbers[place] for place in places]
    return HostPlan(
        tuple(memories[memory] for memory in kept),
        tuple(replace(value, memory=new[value.memory]) for value in plan.values),
        plan.constants,
        tuple(function.changed(partial(_renumbered, new)) for function in plan.functions),
    )


def _share(
    plan: HostPlan, function: HostFunction, common: Collection[int], memories: list[Allocation], places: list[int]
) -> None:
    kept = {plan.values[number].memory for number in (*function.inputs, *function.read)}
    kept |= set(common)
    kept |= {number for number, memory in enumerate(memories) if memory.constant is not None}
    last = {memory: time for time, launch in enumerate(function.launches) for memory in _used(launch)}
    free: list[int] = []
    seen: set[int] = set()
    for time, launch in enumerate(function.launches):
        for memory in _used(launch):
            if memory in kept or memory in seen:
                continue
            seen.add(memory)
            found = _best(memories, free, memories[memory])
            if found is not None:
                free.remove(found)
                places[memory] = found
                memories[found] = _grown(memories[found], memories[memory])
        free += [places[memory] for memory in set(_used(launch)) if last[memory] == time and memory not in kept]


def _best(memories: list[Allocation], free: Collection[int], wanted: Allocation) -> int | None:
    """The free memory that fits ``wanted`` with the fewest bytes to spare, or to add."""
    fitting = [number for number in free if _may_share(memories[number], wanted)]
    if isinstance(wanted.bytes, int) and wanted.image is None:
        size = wanted.bytes
        return min(fitting, key=lambda n: (memories[n].bytes < size, abs(memories[n].bytes - size)), default=None)
    return min(fitting, default=None)


def _may_share(have: Allocation, wanted: Allocation) -> bool:
    if have.zeros != wanted.zeros:
        return False
    if have.image is not None or wanted.image is not None:
        return (have.image, have.dtype) == (wanted.image, wanted.dtype)
    return have.bytes == wanted.bytes or (isinstance(have.bytes, int) and isinstance(wanted.bytes, int))


def _grown(have: Allocation, wanted: Allocation) -> Allocation:
    is_enough = have.image is not None or have.bytes == wanted.bytes
    return have if is_enough else replace(have, bytes=max(have.bytes, wanted.bytes))


def _used(launch: Launch) -> list[int]:
    return [argument.memory for argument in launch.arguments if argument.memory is not None]


def _renumbered(new: list[int], function: HostFunction) -> HostFunction:
    def launch(one: Launch) -> Launch:
        arguments = (a if a.memory is None else replace(a, memory=new[a.memory]) for a in one.arguments)
        return replace(one, arguments=tuple(arguments))

    return replace(function, launches=tuple(map(launch, function.launches)))
