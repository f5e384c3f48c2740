"""Rules written in Python: a generator that yields a pattern, and then what that equals.

In: a function whose parameters are the variables of a rule. Out: :class:`PythonRule`, the text rule that looks for the
pattern and asks for ``python:NAME`` (make.egg), and the builder that answers: the function run again, on the tensors
and attributes that were found.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tvm import ir

from eqsat_layout.egraph.attribute_text import shown
from eqsat_layout.egraph.expressions import quoted
from eqsat_layout.egraph.patterns import Filled, Item, Operand, PatternOp, Variable
from eqsat_layout.egraph.rule_notes import PYTHON
from eqsat_layout.egraph.rules import Command
from eqsat_layout.errors import Declined, Refused, RuleError


@dataclass(frozen=True)
class PythonRule:
    """``command`` is the rule as text; ``tensors`` and ``attributes`` are the parameters by what they stand for."""

    function: Callable[..., Iterator[Any]]
    command: Command
    tensors: tuple[str, ...]
    attributes: tuple[str, ...]

    @property
    def asked_for(self) -> str:
        """What its text asks for, and its :meth:`build` answers."""
        return asked_for(self.function)

    def __str__(self) -> str:
        return self.command.text

    def build(self, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """What the pattern equals, over these; :class:`Declined` where the function ends before it yields that."""
        steps = self.function(**dict(zip(self.tensors, operands, strict=True)), **attributes)
        with _Blamed(self.function):
            next(steps)
            for result in steps:
                if not isinstance(result, ir.Expr):
                    raise RuleError(f"{place_of(self.function)}: what the pattern equals is no Relax expression")
                return result
        raise Declined(f"{self.function.__name__} ends before its second yield")


def rule(function: Callable[..., Iterator[Any]]) -> PythonRule:
    """A rule of what a generator function yields: a pattern of ops, and what that equals.

    Its parameters stand for tensors and attributes. It is run once to read the pattern, up to the first ``yield``, and
    again wherever that is found, with the tensors (``relax.Var``, with their types) and attributes: a ``return`` before
    the second ``yield`` says that the rule does not hold there. What of a pattern's attributes is not named has its
    default. Raises :class:`RuleError` with file and line for what is no such function.

        @eqsat_layout.rule
        def silu(x):
            yield op.multiply(x, op.sigmoid(x))
            yield op.nn.silu(x)
    """
    where = place_of(function)
    if not inspect.isgeneratorfunction(function):
        raise RuleError(f"{where}: a rule yields its pattern, and then what that equals")
    names = list(inspect.signature(function).parameters)
    with _Blamed(function):
        steps = function(**{name: Variable(name) for name in names})
        pattern = next(steps, None)
        steps.close()
    if not isinstance(pattern, PatternOp | Item):
        raise RuleError(f"{where}: the first yield is a pattern, op.NAME(...) of the parameters, not {pattern!r}")
    text = _Text()
    top = text.operand(pattern)
    unused = [name for name in names if name not in {**text.tensors, **text.attributes}]
    if unused:
        raise RuleError(f"{where}: the pattern says nothing of {unused[0]!r}")
    both = [name for name in names if name in text.tensors and name in text.attributes]
    if both:
        raise RuleError(f"{where}: {both[0]!r} can't be a tensor and an attribute")
    tensors = tuple(name for name in names if name in text.tensors)
    attributes = tuple(name for name in names if name in text.attributes)
    made = f"(Make {quoted(asked_for(function))} {_settings(attributes)} {_listed(map(_variable, tensors))})"
    label = quoted(function.__name__)
    whole = f"(rule ({' '.join(text.facts)}) ((may-become {top} {made})) :ruleset logical :name {label})"
    code = function.__code__
    return PythonRule(function, Command(whole, code.co_filename, code.co_firstlineno, 1), tensors, attributes)


def asked_for(function: Callable[..., Any]) -> str:
    """The name of what a rule makes: no op is called so."""
    return f"{PYTHON}{function.__name__}@{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


def place_of(function: Callable[..., Any]) -> str:
    """``file:line``."""
    code = getattr(function, "__code__", None)
    return repr(function) if code is None else f"{code.co_filename}:{code.co_firstlineno}"


_HINT: Final = "; the ops of a pattern are those of eqsat_layout.op, which has all of tvm.relax.op"


class _Blamed:
    """Turns what goes wrong in a person's function into :class:`RuleError` with the line there; refusals go through."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, Refused) or not isinstance(error, Exception):
            return
        file = self._function.__code__.co_filename
        lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == file]
        where = f"{file}:{lines[-1]}" if lines else place_of(self._function)
        said = str(error) if isinstance(error, RuleError | AttributeError) else f"{type(error).__name__}: {error}"
        said += _HINT if "OpaquePyObject" in said else ""
        if not said.startswith(file):
            raise RuleError(f"{where}: {said}") from error


@dataclass
class _Text:
    """A pattern as facts, and the variables in it by what they stand for."""

    facts: list[str] = field(default_factory=list)
    tensors: dict[str, None] = field(default_factory=dict)
    attributes: dict[str, None] = field(default_factory=dict)
    known: dict[int, str] = field(default_factory=dict)

    def operand(self, operand: Operand) -> str:
        """The name of its value."""
        if isinstance(operand, Variable):
            self.tensors[operand.name] = None
            return _variable(operand.name)
        if id(operand) not in self.known:
            value = self.known[id(operand)] = f"t{len(self.known)}"
            if isinstance(operand, Filled):
                self.facts.append(f"(filled-with {value} {quoted(operand.number)})")
            elif isinstance(operand, Item):
                self.facts.append(f"(= {value} (Get {operand.index} {self.operand(operand.of)}))")
            else:
                self._term(value, operand)
        return self.known[id(operand)]

    def _term(self, value: str, term: PatternOp) -> None:
        key = f"k{value[1:]}"
        place = len(self.facts)
        operands = _listed(map(self.operand, term.operands))
        self.facts.insert(place, f"(= {value} (Op {key} {operands}))")
        self.facts.insert(place + 1, f"(is {key} {quoted(term.name)})")
        for name, wanted in term.attributes.items():
            if isinstance(wanted, Variable):
                self.attributes[wanted.name] = None
            text = _variable(wanted.name) if isinstance(wanted, Variable) else quoted(shown(_lists(wanted)))
            self.facts.append(f"(attr {key} {quoted(name)} {text})")
        self.facts += [f"(default {key} {quoted(name)})" for name in term.unnamed]


def _variable(name: str) -> str:
    """No relation or constructor is called so."""
    return f"{name}__"


def _listed(values: Iterator[str]) -> str:
    names = list(values)
    return "".join(f"(Arg {name} " for name in names) + "(End)" + ")" * len(names)


def _lists(value: Any) -> Any:
    return [_lists(one) for one in value] if isinstance(value, list | tuple) else value


def _settings(attributes: Sequence[str]) -> str:
    """What is asked with: the attributes that were found, as text."""
    if not attributes:
        return quoted("")
    parts = [f"{quoted(('' if not i else ', ') + name + '=')} {_variable(name)}" for i, name in enumerate(attributes)]
    return f"(+ {' '.join(parts)})"
