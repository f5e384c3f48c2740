"""Relax ops by name: what each takes, calls of it, and the attributes of a call as plain values.

In: the name of an op, tensors and attributes as its Python function has them. Out: a Relax call; and back. The
registered op says which of its arguments are tensors, its Python function what the others are called: no list of ops.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.relax import op as functions

from eqsat_layout.errors import ILL_TYPED, Refused, did_you_mean
from eqsat_layout.graph.op_names import RELAX, relax_ops
from eqsat_layout.graph.templates import Template, leaf_exprs
from eqsat_layout.notes import last_of

ONE: Final = ("Tensor", "ffi::Optional<Tensor>")
LISTS: Final = ("Tuple of Tensors", "List of Tensors")
"""What a registered op calls an argument that is a tensor, or several."""

_TEXTUAL: Final = (bool, int, float, str, list, tuple, type(None))
NO_WORDS: Final = "its {!r} is code, for which rules have no words; a view of a program is '(is k \"view\")'"
_SEVERAL: Final = re.compile(r"\b(List|Tuple)\[relax\.Expr\]")
_PLAIN: Final = MappingProxyType({"bool": bool, "int": int, "float": float, "str": str})
"""Types as documentation calls them."""

Attribute = bool | int | float | str | None | list["Attribute"]
"""An attribute as a plain value."""


@dataclass(frozen=True)
class Parameter:
    """``kind`` as the registered op has it, empty for an attribute; ``hint`` as the function has it."""

    name: str
    kind: str
    hint: Any
    default: Any

    @property
    def is_tensor(self) -> bool:
        """It is a tensor, or several."""
        return self.kind in ONE or self.is_list

    @property
    def is_list(self) -> bool:
        """It is several tensors."""
        return self.kind in LISTS

    @property
    def is_required(self) -> bool:
        """It has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def is_code(self) -> bool:
        """It is a function, such as the index map of a layout transform: text has no words for it."""
        return Callable in typing.get_args(self.hint)


@cache
def parameters(name: str) -> tuple[Parameter, ...] | None:
    """The parameters of an op's function; None if there is no such op, or it takes no tensor."""
    function = function_of(name)
    if function is None:
        return None
    names = list(inspect.signature(function).parameters)
    kinds = {}
    for place, argument in enumerate(tvm.ir.Op.get(name).arguments):  # the function may have another name for it
        known = str(argument.name) if str(argument.name) in names else names[min(place, len(names) - 1)]
        kinds[known] = str(argument.type_info)
    hints = typing.get_type_hints(function)
    found = []
    for p in inspect.signature(function).parameters.values():
        said = _documented(function, p.name) if p.name not in hints else ""
        kind = kinds.get(p.name, "")
        kind = LISTS[0] if kind in ONE and _SEVERAL.search(said) else kind
        found.append(Parameter(p.name, kind, hints.get(p.name, _PLAIN.get(said)), p.default))
    return tuple(found) if any(p.is_tensor for p in found) else None


def _documented(function: Any, name: str) -> str:
    """The type that the documentation of a function without hints gives a parameter; empty if it gives none."""
    found = re.search(rf"^{name} ?: ?(.*)$", inspect.getdoc(function) or "", re.MULTILINE)
    return found[1].strip() if found else ""


@cache
def documentation_of(name: str) -> str:
    """What that function says of itself; empty if it says nothing, or there is none."""
    return inspect.getdoc(function_of(name)) or ""


@cache
def function_of(name: str) -> Any:
    """The Python function that makes calls of an op; None if there is none."""
    if name not in relax_ops():
        return None
    function: Any = functions
    for part in name.removeprefix(RELAX).split("."):
        function = getattr(function, part, None)
    return function if inspect.isfunction(function) else None


def make_call(name: str, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """The call of op ``name``; :class:`Refused` where the op does not take these. Its type is not inferred yet.

    Operands are told apart by their places: a list of tensors takes all that the parameters after it leave over.
    """
    known = parameters(name)
    if known is None:
        near = did_you_mean(name, relax_ops())
        raise Refused(f"there is no op {name!r} that takes tensors; {near}".rstrip("; "))
    unknown = [key for key in attributes if key not in [p.name for p in known if not p.is_tensor]]
    if unknown:
        own = ", ".join(p.name for p in known if not p.is_tensor) or "none"
        raise Refused(f"{name} has no attribute {unknown[0]!r}; it has {own}")
    code = [p.name for p in known if p.is_code and isinstance(attributes.get(p.name), _TEXTUAL)]
    if code:
        raise Refused(NO_WORDS.format(code[0]))
    arguments = {**_placed(name, known, tensors), **attributes}
    missing = [p.name for p in known if p.is_required and p.name not in arguments]
    if missing:
        raise Refused(f"{name} needs {missing[0]!r}")
    try:
        return function_of(name)(**arguments)
    except (AttributeError, AssertionError, *ILL_TYPED) as error:
        raise Refused(f"{name} does not take these attributes: {last_of(error)}") from error


def _placed(name: str, known: Sequence[Parameter], tensors: Sequence[Any]) -> dict[str, Any]:
    """The operands by parameter."""
    places = [p for p in known if p.is_tensor]
    rest = list(tensors)
    found: dict[str, Any] = {}
    for number, place in enumerate(places):
        if place.is_list:
            after = sum(1 for p in places[number + 1 :] if p.is_required)
            taken = max(len(rest) - after, 0)
            found[place.name], rest = relax.Tuple(rest[:taken]), rest[taken:]
        elif rest:
            found[place.name] = rest.pop(0)
    if rest:
        raise Refused(f"{name} takes {len(tensors) - len(rest)} tensors, and is given {len(tensors)}")
    return found


def typed(builder: Any, expr: Any) -> Any:
    """``expr`` with its type inferred; :class:`Refused` where TVM's type inference does not take it."""
    try:
        return builder.normalize(expr)
    except ILL_TYPED as error:
        raise Refused(last_of(error)) from error


def attributes_of(call: Any) -> dict[str, Attribute] | None:
    """The attributes of a call, by the names of its function's parameters; those that are no plain values are left out.

    None for what is no call of an op with a Python function that would make the same call of them.
    """
    name = str(getattr(getattr(call, "op", None), "name", ""))
    known = parameters(name)
    if known is None:
        return None
    unsaid = {p.name: p.default for p in known if not p.is_tensor and not p.is_required}
    given = {**unsaid, **fields_of(call.attrs), **_arguments(call, known)}
    found = {key: _plain(value) for key, value in given.items() if any(p.name == key for p in known)}
    plain = {key: value for key, value in found.items() if value is not _NO_VALUE}
    return plain if len(plain) == len(found) and _makes_again(name, call, plain) else None


def defaults_of(call: Any, attributes: Mapping[str, Attribute]) -> list[str]:
    """Those of its ``attributes`` that it would have without being told."""
    name = str(call.op.name)
    rest = {p.name for p in parameters(name) or () if not p.is_required}
    without = ((key, {k: v for k, v in attributes.items() if k != key}) for key in attributes if key in rest)
    return [key for key, others in without if _makes_again(name, call, others)]


def with_attributes(call: Any, leaves: Sequence[Any], changed: Mapping[str, Any]) -> Any:
    """The same call over other operands, with some attributes changed; :class:`Refused` where that is none."""
    if not changed and len(leaves) == len(leaf_exprs(call)):
        return Template(call).over(leaves)
    own = attributes_of(call)
    if own is None:
        raise Refused(f"the attributes of {getattr(call.op, 'name', 'a call')} can't be changed")
    return make_call(str(call.op.name), leaves, {**own, **changed})


class _NoValue:
    pass


_NO_VALUE: Final = _NoValue()


def fields_of(attrs: Any) -> dict[str, Any]:
    """The attributes of a call, ``call.attrs``, as TVM has them, by name."""
    if attrs is None:
        return {}
    return {f.name: getattr(attrs, f.name) for f in type(attrs).__tvm_ffi_type_info__.fields}


def _arguments(call: Any, known: Sequence[Parameter]) -> dict[str, Any]:
    """The arguments that are no tensors: a call has its function's parameters in order, without the attributes."""
    fields = fields_of(call.attrs)
    places = [p for p in known if p.name not in fields]
    return {p.name: arg for p, arg in zip(places, call.args, strict=False) if not p.is_tensor}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tvm_ffi.dtype | str):
        return str(value)
    if isinstance(value, tirx.IntImm | tirx.FloatImm):
        return bool(value.value) if str(value.ty.dtype) == "bool" else value.value
    if isinstance(value, ir.StringImm):
        return str(value.value)
    if isinstance(value, relax.Tuple):
        value = value.fields
    if isinstance(value, relax.ShapeExpr):
        value = value.values
    if isinstance(value, Sequence | tvm_ffi.Array):
        items = [_plain(item) for item in value]
        return _NO_VALUE if any(item is _NO_VALUE for item in items) else items
    return _NO_VALUE


def _makes_again(name: str, call: Any, attributes: Mapping[str, Attribute]) -> bool:
    """Whether the op's function makes this very call of these attributes."""
    leaves = [relax.Var(f"p{i}", leaf.ty) for i, leaf in enumerate(leaf_exprs(call))]
    try:
        again = make_call(name, leaves, attributes)
    except Refused:
        return False
    own = Template(call).over(leaves)
    same_arguments = tvm_ffi.structural_equal(relax.Tuple(list(again.args)), relax.Tuple(list(own.args)), True)
    return bool(same_arguments and tvm_ffi.structural_equal(again.attrs, own.attrs))
