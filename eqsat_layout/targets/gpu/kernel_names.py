"""Names that kernels can have: words of C, and short enough for the files that drivers keep them in.

In: a module whose PrimFuncs are called by all that was fused into them, or as a user liked. Out: the same with other
names where these will not do. PoCL ends the process at a name of more than 255 characters.
"""

from __future__ import annotations

import re
from typing import Any, Final

import tvm
from tvm import relax, s_tir, tirx

from eqsat_layout.graph.public_names import is_public
from eqsat_layout.graph.renaming import renamed, variable_like
from eqsat_layout.tir.structural import nodes_of, substitute, with_primfuncs

_LONGEST: Final = 80
"""Characters, before those that tell names apart."""


def with_kernel_names(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with private PrimFuncs renamed, and tensors in all. What the outside knows by name keeps it."""
    mod = with_primfuncs(mod, lambda _, func: _with_words(func))
    taken = {str(var.name_hint) for var in mod.get_global_vars()}
    names: dict[Any, Any] = {}
    for var, func in mod.functions_items():
        name = str(var.name_hint)
        if isinstance(func, tirx.PrimFunc) and not is_public(func) and (word := _word(name)) != name:
            names[var] = variable_like(var, _free(word, taken))
    if not names:
        return mod
    functions = {
        names.get(var, var): renamed(func, names) if isinstance(func, relax.Function) else func
        for var, func in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _word(name: str) -> str:
    """``name`` itself where it is one."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
    return f"k{word}"[:_LONGEST] if word[0].isdigit() else word[:_LONGEST]


def _free(word: str, taken: set[str]) -> str:
    """One that is not taken yet; it is from then on."""
    found, number = word, 0
    while found in taken:
        number += 1
        found = f"{word}_{number}"
    taken.add(found)
    return found


def _with_words(func: Any) -> Any:
    """Tensors are called as those of a model are, ``/layer1/conv.1``, where a kernel was made of a single op."""
    found = {*func.params, *nodes_of(func.body, tvm.ir.Var)}
    found |= {buffer for block in nodes_of(func.body, s_tir.SBlock) for buffer in block.alloc_buffers}
    bad = [var for var in found if _word(str(var.name)) != str(var.name)]
    if not bad:
        return func
    new = {var: type(var)(_word(str(var.name)), var.ty) for var in bad}
    body = substitute(func.body, new)
    params = [new.get(param, param) for param in func.params]
    return tirx.PrimFunc(params, body, ret_type=func.ret_type, attrs=func.attrs)
