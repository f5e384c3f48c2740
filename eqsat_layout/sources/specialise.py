"""A program made for some sizes, with the general one for all others.

In: a source with symbolic shapes, and sizes by symbols. Out: the source whose entry compares the sizes that it is given
and calls a private function that has the fitting ones as numbers. All is in one module, so a library does it anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm import relax, te, tirx

from eqsat_layout.errors import InputError
from eqsat_layout.graph.public_names import without_public_name
from eqsat_layout.sources.program import Source

MOST: Final = 16
"""Programs that one is made into."""


def specialised(source: Source, cases: Sequence[Mapping[Any, int]]) -> Source:
    """``source`` that runs a program of its own where its symbols are as one of ``cases`` says, the first that fits."""
    if not cases:
        return source
    if len(cases) > MOST:
        raise InputError(f"shapes: {len(cases)} combinations of sizes, and at most {MOST} programs are made of one")
    entry, general = source.entry, source.function
    builder = relax.BlockBuilder(source.module)
    otherwise = builder.add_func(_private(general), f"{entry}_any_size")
    choices: list[_Choice] = []
    for case in cases:
        sizes = {symbol: tirx.IntImm("int64", size) for symbol, size in case.items()}
        name = "_".join([entry, *(f"{symbol.name}{size}" for symbol, size in case.items())])
        own = general.bind_symbolic_vars(sizes)  # of which the chooser takes the types: sizes left open are its own
        made = builder.add_func(_private(own), name)
        choices.append(_Choice(case, own, made, builder.add_func(_test(case), f"is_{name}")))
    mod = builder.get()
    mod.update_func(mod.get_global_var(entry), _chooser(general, choices, otherwise))
    mod = relax.transform.Normalize()(mod)
    relax.analysis.well_formed(mod)
    return replace(source, module=mod)


@dataclass(frozen=True)
class _Choice:
    """``test`` is a PrimFunc that says whether the sizes are those of ``case``, for which ``function`` was made."""

    case: Mapping[Any, int]
    function: Any
    var: Any
    test: Any


def _private(function: Any) -> Any:
    return without_public_name(relax.utils.copy_with_new_vars(function))


def _test(case: Mapping[Any, int]) -> Any:
    """``test(sizes..., result)``, as ``call_tir`` calls it."""
    sizes = [tirx.Var(str(symbol.name), "int64") for symbol in case]
    equal = [size == tirx.IntImm("int64", wanted) for size, wanted in zip(sizes, case.values(), strict=True)]
    fits = te.compute((), lambda: tirx.all(*equal), "fits")
    return te.create_prim_func([*sizes, fits]).without_attr("global_symbol")


def _chooser(general: Any, choices: Sequence[_Choice], otherwise: Any) -> Any:
    """A function with the parameters and the type of ``general``."""
    params, result = list(general.params), general.ret_ty
    last = _Bindings()
    value = last.ending(last.bind(relax.Call(otherwise, params), result))
    for choice in reversed(choices):
        value = _either(choice, params, result, value)
    return relax.Function(params, value, result, attrs=general.attrs)


def _either(choice: _Choice, params: Sequence[Any], result: Any, other: Any) -> Any:
    here, outside = _Bindings(), _Bindings()
    given = [here.cast(param, own.ty) for param, own in zip(params, choice.function.params, strict=True)]
    made = here.bind(relax.Call(choice.var, given), choice.function.ret_ty)
    fitting = here.ending(here.cast(made, result))
    yes = relax.TensorType((), "bool")
    fits = outside.bind(relax.call_tir(choice.test, list(choice.case), yes), yes)
    return outside.ending(outside.bind(relax.If(fits, fitting, other), result))


class _Bindings:
    """The bindings of one branch, in their order."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def bind(self, value: Any, ty: Any) -> Any:
        """A variable for ``value``."""
        var = relax.Var(f"v{len(self._made)}", ty)
        self._made.append(relax.VarBinding(var, value))
        return var

    def cast(self, value: Any, ty: Any) -> Any:
        """``value`` as one of that type, which is checked when it runs."""
        var = relax.Var(f"v{len(self._made)}", ty)
        self._made.append(relax.MatchCast(var, value, ty))
        return var

    def ending(self, value: Any) -> Any:
        """All of it."""
        return relax.SeqExpr([relax.BindingBlock(self._made)], value)
