"""The exceptions of the package. Every message names what is at fault: the op, the file and line, or the argument."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

ILL_TYPED: Final = (ValueError, TypeError, IndexError, RuntimeError)
"""What TVM's type inference raises for a call that it does not take, over all Relax ops with many shapes and types.

For calls into TVM alone: among our own code it would hide faults.
"""


_ENDLESS: Final = re.compile(r"\S{400,}")
"""A word as no message has one, but in what was given: a file where its name was meant."""
_SHOWN: Final = 100


class EqsatError(Exception):
    """Base of every error that this package raises on purpose. Of endless words its message shows the beginning."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(_ENDLESS.sub(_beginning, arg) if isinstance(arg, str) else arg for arg in args))


def _beginning(word: re.Match[str]) -> str:
    return f"{word[0][:_SHOWN]}... ({len(word[0]):,} characters)"


class LayoutError(EqsatError, ValueError):
    """A layout or an index map that is malformed or does not fit its tensor."""


class CandidateError(EqsatError, ValueError):
    """A replacement for an op that is none: no layouts, kernel or graph of the op's operands and result."""


class CostError(EqsatError, ValueError):
    """A cost model that gives no costs: it raises, or answers what is no number of seconds."""


class RuleError(EqsatError):
    """A rule file that can't be loaded; the message starts with ``file:line:column``."""


class InputError(EqsatError, ValueError):
    """An input, or a shape for one, that does not fit the program; the message names it, what it is and what came."""


class MalformedModuleError(EqsatError, ValueError):
    """An IRModule that is not well formed; the message names the function and the binding."""


class TargetError(EqsatError, ValueError):
    """A target that is unknown or can't be built for here."""


class ValidationError(EqsatError):
    """The optimised module computes something else than the input; the message names the function and the result."""


class Refused(EqsatError):
    """Something does not apply here, for the ``reason`` that is its text; whoever asked tries something else.

    The one exception that schedules, passes and flows use for that, beside TVM's ``ScheduleError``. Anything else that
    is raised is a fault.
    """


class Declined(Refused):
    """A rule says by itself that it does not hold here."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """``did you mean 'relax.nn.relu'? `` for ``relax.nn.rely`` or ``rely``; "" where nothing is near."""
    names = {known_name.rpartition(".")[2]: known_name for known_name in sorted(known)}
    names |= {whole: whole for whole in names.values()}
    near = get_close_matches(str(name), names, 1, cutoff=0.65)
    return f"did you mean {names[near[0]]!r}? " if near else ""
