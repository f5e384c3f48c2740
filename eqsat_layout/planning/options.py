"""Options as a user may give them.

In: their names. Out: nothing, or an error that names the one that is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypedDict, TypeVar

from eqsat_layout.errors import EqsatError, did_you_mean

if TYPE_CHECKING:  # a library is opened without what plans
    from eqsat_layout.cost.model import CostModel
    from eqsat_layout.egraph.limits import Limits
    from eqsat_layout.egraph.python_rules import PythonRule
    from eqsat_layout.graph.frozen import DesiredLayouts
    from eqsat_layout.implementations.user_candidates import UserCandidates
    from eqsat_layout.tir.callbacks import FlowCallback


class Options(TypedDict, total=False):
    """What ``optimize``, ``plan``, ``compile``, ``Session``, ``tune`` and ``OptimizeLayout`` take besides source and
    target.

    All are optional. Costs are seconds; shapes are tuples of whole numbers, in the order of the tensor's axes.

    - ``shapes`` (dict, default None): sizes for inputs with symbolic ones, ``{"x": (1, 3, 224, 224)}``. None leaves an
      axis as it is. Several sizes, ``{"x": ((1, 8), 3, 224, 224)}``, make a program for each and one for all others;
      ``range(1, 33)`` stands for 1, 2, 4, 8, 16 and 32.
    - ``assume`` (dict, default 64 for each): the size that costs take a symbolic size for, where no shape gives it, by
      the name that the plan's notes say: ``{"batch": 8}``.
    - ``precision`` ("float16", "bfloat16" or None): products of a float32 model take operands of 16 bits; inputs and
      results keep their types, and results differ by what these round.
    - ``inputs``: a tensor, a tuple of them, or a dictionary by names, to trace an ``nn.Module`` with.
    - ``rules`` (list): ``.egg`` files, and rules written in Python (:func:`eqsat_layout.rule`), beside the package's.
    - ``desired_layouts`` (dict): layouts by op, as TVM's ``ConvertLayout`` takes them, or callbacks. What can't be had
      stays as it is; notes say so, and what costs more.
    - ``candidates`` (bool or dict, default True): offer other layouts and algorithms for convolutions and matrix
      products; a dictionary adds the user's own (:data:`~eqsat_layout.implementations.user_candidates.UserCandidates`).
    - ``approx`` (bool, default True): also those that round differently, such as Winograd, and products of numbers cut
      into parts where the target has a matrix unit.
    - ``flows`` (dict): how layouts go through an op, in place of what its TIR says
      (:class:`~eqsat_layout.tir.callbacks.FlowCallback`).
    - ``objective`` ("time", the default, "traffic" or "copies"): what plans are compared by. For "traffic" the best one
      moves the least bytes, as the target counts them, and costs are the seconds that these alone take. For "copies" it
      has the fewest kernels that only copy, each of which costs a second more, and of such plans it is the fastest.
    - ``cost_model`` (:class:`~eqsat_layout.cost.model.CostModel`): in place of the target's.
    - ``time_limit`` (seconds, default none): of the extraction; the best plan found by then is taken.
    - ``limits`` (:class:`~eqsat_layout.egraph.limits.Limits`): of the rules, so that rules that never come to an end
      are stopped.
    - ``validate`` (bool, default False): run both modules on random inputs, with poison in all padding that nothing may
      rely on, and raise :class:`~eqsat_layout.errors.ValidationError` where they differ.
    - ``fallback`` (bool, default False): as ``validate``; where they differ, give the input back with a note.
    - ``notes`` (list): what a person should know is added to it; a plan has it in :attr:`Plan.notes` too.
    """

    shapes: Mapping[str, Sequence[int | Sequence[int] | None]] | None
    assume: Mapping[str, int] | None
    inputs: Any
    precision: str | None
    rules: Iterable[str | Path | PythonRule] | None
    desired_layouts: DesiredLayouts | None
    objective: str | None
    cost_model: CostModel | None
    time_limit: float | None
    limits: Limits | None
    validate: bool
    fallback: bool
    flows: Mapping[str, FlowCallback] | None
    notes: list[str] | None
    candidates: UserCandidates | bool
    approx: bool


_SWITCHES: Final = ("approx", "validate", "fallback")

P = ParamSpec("P")
R = TypeVar("R")


def with_options_in_help(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, whose docstring says what ``**options`` may be, as :class:`Options` does."""
    said = inspect.cleandoc(Options.__doc__ or "").partition("\n\n")[2]
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nOptions:\n\n{said}"
    return function


def check_options(options: Mapping[str, Any]) -> None:
    """:class:`TypeError` for an option that is none; :class:`EqsatError` for a switch that is neither on nor off, rule
    files that can't be read, and notes that nothing can be added to."""
    known = Options.__annotations__
    unknown = sorted(set(options) - known.keys())
    if unknown:
        near = did_you_mean(unknown[0], known)
        raise TypeError(f"got an unexpected option {unknown[0]!r}; {near}there are {', '.join(known)}")
    for name in _SWITCHES:
        if not isinstance(value := options.get(name), bool | None):
            raise EqsatError(f"{name} must be True or False, got {value!r}")
    if isinstance(options.get("rules"), list | tuple):  # an iterator is read once, by whoever plans
        from eqsat_layout.planning.checked_options import check_rule_files  # which knows rules written in Python

        check_rule_files(options["rules"])
    if not isinstance(notes := options.get("notes"), list | None):
        raise EqsatError(f"notes must be a list, got {notes!r}")
