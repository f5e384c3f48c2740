"""Options as a user may give them.

In: their names. Out: nothing, or an error that names the one that is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

from eqsat_layout.errors import did_you_mean

if TYPE_CHECKING:  # a library is opened without what plans
    from eqsat_layout.cost.model import CostModel
    from eqsat_layout.egraph.limits import Limits
    from eqsat_layout.egraph.python_rules import PythonRule
    from eqsat_layout.graph.frozen import DesiredLayouts
    from eqsat_layout.implementations.collect import UserCandidates
    from eqsat_layout.tir.callbacks import FlowCallback


class Options(TypedDict, total=False):
    """What ``optimize``, ``plan``, ``compile``, ``Session``, ``tune`` and ``OptimizeLayout`` take besides source and
    target.

    ``shapes``: sizes for inputs with symbolic ones, ``{"x": (1, 3, 224, 224)}``; None leaves an axis as it is, and
    several, ``{"x": ((1, 8), 3, 224, 224)}``, make a program for each of them and one for all others; ``range(1, 33)``
    stands for 1, 32 and the powers of two between.
    ``assume``: what costs take symbolic sizes for that no shape gives, by the names that the plan's notes say,
    ``{"batch": 8}``; 64 where nothing is said.
    ``precision``: "float16" or "bfloat16" computes products of a float32 model with operands of 16 bits; inputs and
    results keep their types, and results differ by what these round.
    ``inputs``: a tensor, a tuple of them, or a dictionary by names, to trace an ``nn.Module`` with.
    ``rules``: further ``.egg`` files, and rules written in Python (:func:`eqsat_layout.rule`).
    ``desired_layouts``: layouts by op, as TVM's ``ConvertLayout`` takes them, or callbacks; best effort, notes say
    where they can't be had or cost more. ``candidates``: False offers no other
    implementations of convolutions and matrix products than the written ones; a dictionary adds the user's own
    (:data:`~eqsat_layout.implementations.collect.UserCandidates`). ``approx``: also those that round differently, such
    as Winograd, and matrix products from parts of numbers where the target has a matrix unit. ``flows``: how layouts go
    through ops, in place of what their TIR says (:class:`~eqsat_layout.tir.callbacks.FlowCallback`). ``cost_model``: in
    place of the target's roofline.
    ``time_limit``: of the extraction, in seconds. ``limits``: of the rules, so that rules that never come to an end are
    stopped. ``validate``: run both modules on random inputs, with poison in all padding that nothing may rely on, and
    raise :class:`~eqsat_layout.errors.ValidationError` where they differ. ``fallback``: where they differ, give the
    input back, with a note that says where, instead of raising; implies ``validate``.
    ``notes``: a list that ``compile`` adds what a person should know to; :attr:`Plan.notes` has it for a plan.
    """

    shapes: Mapping[str, Sequence[int | Sequence[int] | None]] | None
    assume: Mapping[str, int] | None
    inputs: Any
    precision: str | None
    rules: Iterable[str | Path | PythonRule] | None
    desired_layouts: DesiredLayouts | None
    cost_model: CostModel | None
    time_limit: float | None
    limits: Limits | None
    validate: bool
    fallback: bool
    flows: Mapping[str, FlowCallback] | None
    notes: list[str] | None
    candidates: UserCandidates | bool
    approx: bool


P = ParamSpec("P")
R = TypeVar("R")


def with_options_in_help(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, whose docstring says what ``**options`` may be, as :class:`Options` does."""
    said = inspect.cleandoc(Options.__doc__ or "").partition("\n\n")[2]
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nOptions:\n\n{said}"
    return function


def check_names(options: Mapping[str, Any]) -> None:
    """:class:`TypeError` for an option that is none."""
    known = Options.__annotations__
    unknown = sorted(set(options) - known.keys())
    if unknown:
        near = did_you_mean(unknown[0], known)
        raise TypeError(f"got an unexpected option {unknown[0]!r}; {near}there are {', '.join(known)}")
