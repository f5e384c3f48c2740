"""Frozen layouts follow what is renamed, and nothing else."""

from __future__ import annotations

import tvm
from tvm import relax

from eqsat_layout.graph.frozen import FROZEN_ATTRIBUTE
from eqsat_layout.passes.frozen_names import with_frozen_names

LAYOUTS = {"v1": ["NHWC", "OHWI"]}


def module(*bound: tuple[str, str]) -> tvm.IRModule:
    """A function that binds these names to the results of these ops, or to the name before."""
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    bindings, last = [], x
    for name, op in bound:
        value = last if op == "alias" else getattr(relax.op, op)(x)
        var = relax.DataflowVar(name, x.ty)
        bindings.append(relax.VarBinding(var, value))
        last = var
    result = relax.Var("gv", x.ty)
    block = relax.DataflowBlock([*bindings, relax.VarBinding(result, last)])
    body = relax.SeqExpr([block], result)
    function = relax.Function([x], body, x.ty).with_attr(FROZEN_ATTRIBUTE, LAYOUTS)
    return tvm.IRModule({"main": function})


def frozen(after: tvm.IRModule, before: tvm.IRModule) -> set[str]:
    return set(map(str, with_frozen_names(after, before)["main"].attrs[FROZEN_ATTRIBUTE]))


def test_an_alias_is_frozen_where_the_name_has_gone() -> None:
    assert frozen(module(("lv", "exp")), module(("v1", "exp"), ("lv", "alias"))) == {"lv"}


def test_another_op_under_the_name_of_an_alias_is_not() -> None:
    """The program fuzzer froze a convolution that nothing read; a product got the name that it had been bound to."""
    assert frozen(module(("lv", "sin")), module(("v1", "exp"), ("lv", "alias"))) == set()
