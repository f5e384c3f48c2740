"""Patterns of Relax ops, written with the ops themselves: ``op.multiply(x, op.sigmoid(x))``.

In: calls of ``op.NAME`` as ``tvm.relax.op.NAME`` takes them. Out: a :class:`PatternOp` where an operand or an attribute
is a variable of a rule; the Relax expression with its type where there is none, so that the result of a rule is written
in the same words.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tvm import ir, relax

from eqsat_layout.errors import ILL_TYPED, Refused, RuleError, did_you_mean
from eqsat_layout.graph.constants import number_text
from eqsat_layout.graph.op_calls import Parameter, function_of, parameters, typed
from eqsat_layout.graph.op_names import relax_ops

_PREFIX: Final = "relax"


@dataclass(frozen=True)
class Variable:
    """What a parameter of a rule stands for in its pattern: any tensor, or any attribute, as the place has it."""

    name: str

    def _refuse(self, *_: Any) -> Any:
        raise RuleError(f"in a pattern {self.name!r} stands for anything; compute with it behind the first yield")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __iter__ = __len__ = _refuse
    __getitem__ = __bool__ = __lt__ = __gt__ = __le__ = __ge__ = __mod__ = __floordiv__ = _refuse


@dataclass(frozen=True)
class PatternOp:
    """An op in a pattern; ``unnamed``: attributes of which nothing is said, so that they have their defaults."""

    name: str
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    unnamed: tuple[str, ...] = ()

    def __getitem__(self, index: int) -> Item:
        """One of several results."""
        if not isinstance(index, int):
            raise RuleError(f"a result of {self.name} is taken by its number, not by {index!r}")
        return Item(self, index)

    def __iter__(self) -> Iterator[Any]:
        raise RuleError(f"the results of {self.name} are taken by their numbers, as in [0]")


@dataclass(frozen=True)
class Item:
    """One of several results of an op."""

    of: PatternOp
    index: int


@dataclass(frozen=True)
class Filled:
    """A constant that is a number everywhere, as text."""

    number: str


Operand = Variable | PatternOp | Item | Filled


class Ops:
    """The Relax ops whose names begin so: ``op.nn.relu`` is ``relax.nn.relu``, called as ``tvm.relax.op.nn.relu`` is.

    In a rule's pattern operands and attributes may be its parameters. An op that does not exist is an
    :class:`AttributeError` with the nearest names.
    """

    def __init__(self, prefix: str = _PREFIX):
        self._prefix = prefix
        self.__name__ = prefix.replace(_PREFIX, "op", 1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self._prefix}.{name}"
        if function_of(whole) is not None:
            return _Op(whole)
        if any(known.startswith(f"{whole}.") for known in relax_ops()):
            return Ops(whole)
        near = did_you_mean(whole, relax_ops())
        raise AttributeError(f"there is no op {whole!r}; {near}".rstrip("; "))

    def __dir__(self) -> list[str]:
        start = f"{self._prefix}."
        return sorted({n.removeprefix(start).split(".")[0] for n in relax_ops() if n.startswith(start)})


op: Final = Ops()


@dataclass(frozen=True)
class _Op:
    name: str

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        function = function_of(self.name)
        if not _mentions_variables([*arguments, *named.values()]):
            try:
                bound = _with_constants(self.name, arguments, named)
                call = function(*bound.args, **bound.kwargs)
            except (AttributeError, AssertionError, *ILL_TYPED) as error:
                raise Refused(f"{self.name} does not take these: {error}") from error
            builder = relax.BlockBuilder.current()
            return call if builder is None else builder.emit(typed(builder, call))
        try:
            bound = inspect.signature(function).bind(*arguments, **named)
        except TypeError as error:
            raise RuleError(f"{self.name}: {error}") from error
        return _term(self.name, bound.arguments)


def _with_constants(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> inspect.BoundArguments:
    """The arguments, numbers in the places of tensors as constants of the type of the first tensor."""
    bound = inspect.signature(function_of(name)).bind(*arguments, **named)
    for one in parameters(name) or ():
        number = bound.arguments.get(one.name)
        if one.is_tensor and isinstance(number, bool | int | float):
            types = [getattr(other, "ty", None) for other in bound.arguments.values()]
            dtypes = [str(ty.dtype) for ty in types if isinstance(ty, relax.TensorType)]
            if dtypes:
                bound.arguments[one.name] = relax.const(number, dtypes[0])
    return bound


def _mentions_variables(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_mentions_variables, value))
    return isinstance(value, Variable | PatternOp | Item)


def _term(name: str, given: Mapping[str, Any]) -> PatternOp:
    known = parameters(name)
    if known is None:
        raise RuleError(f"{name} takes no tensors")
    operands = [o for p in known if p.is_tensor and p.name in given for o in _operands(name, p, given[p.name])]
    attributes = {p.name: given[p.name] for p in known if not p.is_tensor and p.name in given}
    unnamed = tuple(p.name for p in known if not p.is_tensor and p.name not in given)
    for key, value in attributes.items():
        if isinstance(value, PatternOp | Item | ir.Expr) or (
            not isinstance(value, Variable) and _mentions_variables(value)
        ):
            raise RuleError(
                f"{name}: {key} is one variable or a plain value in a pattern, not {_written(value)}; "
                "give it a variable of its own, and compare behind the first yield"
            )
    return PatternOp(name, tuple(operands), attributes, unnamed)


def _written(value: Any) -> str:
    """``[axis]`` as the user wrote it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    return (
        value.name
        if isinstance(value, Variable)
        else f"{value.name}(...)"
        if isinstance(value, PatternOp)
        else repr(value)
    )


def _operands(name: str, parameter: Parameter, given: Any) -> Iterator[Operand]:
    if given is None:
        return
    several = given if isinstance(given, list | tuple) else [given]
    if not parameter.is_list and isinstance(given, list | tuple):
        raise RuleError(f"{name}: {parameter.name} is one tensor")
    for one in several:
        if isinstance(one, bool | int | float):
            yield Filled(number_text(one))
            continue
        if not isinstance(one, Variable | PatternOp | Item):
            raise RuleError(
                f"{name}: operand {parameter.name} is a variable or an op in a pattern, not {_written(one)}"
                + ("; a constant of one number is that number" if isinstance(one, ir.GenericConst) else "")
            )
        yield one
