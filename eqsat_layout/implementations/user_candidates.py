"""What the user says that ops may be replaced by.

In: layouts, PrimFuncs, functions and modules by the names of ops, or callbacks that give some. Out: layouts and graphs
of an op; :class:`~eqsat_layout.errors.CandidateError` for what is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import tvm
from tvm import relax, tirx

from eqsat_layout.errors import CandidateError, EqsatError, LayoutError
from eqsat_layout.graph.frozen import formats_of_layouts
from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.relax_form import relax_type
from eqsat_layout.implementations.layouts import Candidate
from eqsat_layout.implementations.wanted_graphs import MAIN, WantedGraph
from eqsat_layout.maps import Format
from eqsat_layout.tir.extents import extent_of
from eqsat_layout.tir.flow import complete

Replacement = Any
"""What an op may be replaced by: layout names, operands first, for the same op in these layouts; a ``tirx.PrimFunc`` or
``relax.Function`` of the same operands and result; or an ``IRModule`` whose ``main`` is one."""

CandidateCallback = Callable[[Any], Iterable[Replacement] | None]
"""From the ``relax.Call`` to be replaced, over stand-ins of its operands, to its replacements."""

UserCandidates = Mapping[str, Iterable[Replacement] | CandidateCallback]
"""By the name of a Relax op or PrimFunc."""

_MOST = 256
"""A callback that gives more candidates is taken to give them without end."""


def check_user_candidates(given: Any) -> UserCandidates:
    """``given`` as it is, if it is a dictionary by names; :class:`CandidateError` else."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise CandidateError(f"candidates must be True, False or a dictionary by names of ops, got {given!r}")
    return given


def candidates_of_user(
    signature: Signature, name: str, given: Iterable[Replacement] | CandidateCallback
) -> tuple[list[Candidate], list[WantedGraph]]:
    where = f"candidates for {name!r}, asked for {signature.name}"
    try:
        found = list(islice((given(signature.template) if callable(given) else given) or (), _MOST + 1))
    except EqsatError:
        raise
    except Exception as error:  # code of the user's
        raise CandidateError(f"{where}: the callback failed: {type(error).__name__}: {error}") from error
    if len(found) > _MOST:
        raise CandidateError(f"{where}: there are more than {_MOST}; do they ever end?")
    layouts: list[Candidate] = []
    graphs: list[WantedGraph] = []
    for number, replacement in enumerate(found):
        label = f"{name}[{number}]"
        if isinstance(replacement, tirx.PrimFunc | relax.Function | tvm.IRModule):
            graphs.append(WantedGraph(signature.key, label, _module_of(replacement, signature, where), True, where))
        elif isinstance(replacement, list | tuple) and all(isinstance(text, str) for text in replacement):
            layouts += _layouts_of_user(signature, replacement, where)
        else:
            raise CandidateError(f"{where}: {replacement!r} is no list of layout names, PrimFunc, function or module")
    return layouts, graphs


def _layouts_of_user(signature: Signature, names: Sequence[str], where: str) -> list[Candidate]:
    try:
        frozen = formats_of_layouts(signature.template, tuple(names), signature.operands, signature.results, where)
    except LayoutError as error:
        raise CandidateError(f"{where}: {error}") from error
    assert signature.computation is not None
    return [Candidate(" ".join(names), complete(signature.computation, frozen.operands, frozen.results))]


def _module_of(replacement: Any, signature: Signature, where: str) -> tvm.IRModule:
    if isinstance(replacement, relax.Function):
        return tvm.IRModule({MAIN: replacement})
    if isinstance(replacement, tvm.IRModule):
        if MAIN not in [str(v.name_hint) for v in replacement.get_global_vars()]:
            raise CandidateError(f"{where}: the module has no function {MAIN!r}")
        return replacement
    types = [t for t in (*signature.operands, *signature.results) if t is not None]
    given = [getattr(param, "ty", None) for param in replacement.params]
    own = [(tuple(map(extent_of, ty.shape)), str(ty.dtype)) for ty in given if isinstance(ty, tirx.BufferType)]
    if own != [(t.shape, t.dtype) for t in types]:
        raise CandidateError(f"{where}: the PrimFunc is no function of the op's operands that gives its result")
    builder = relax.BlockBuilder()
    symbols = dict(signature.symbols)
    params = [relax.Var(f"p{i}", _type(t, symbols)) for i, t in enumerate(signature.operands) if t is not None]
    result = _type(signature.results[0], symbols)
    with builder.function(MAIN, params):
        with builder.dataflow():
            func = builder.add_func(replacement, "replacement")
            out = builder.emit_output(relax.call_tir(func, relax.Tuple(params), result))
        builder.emit_func_output(out)
    return builder.get()


def _type(ty: Any, symbols: dict[str, Any]) -> Any:
    return relax_type(ty, Format.row_major(ty.shape), symbols)
