"""Calls of Relax ops by name: what is an operand, and what an attribute."""

from __future__ import annotations

from tvm import relax

from eqsat_layout.graph.op_calls import attributes_of, make_call, with_attributes

SCORES, TARGETS, WEIGHTS = (
    relax.Var(name, relax.TensorType(shape, dtype))
    for name, shape, dtype in (("x", (2, 3), "float32"), ("t", (2,), "int32"), ("w", (3,), "float32"))
)


def test_an_operand_that_may_be_left_out_is_no_attribute() -> None:
    """A loss with weights had no attributes that could be read or changed."""
    loss = make_call("relax.nn.nll_loss", [SCORES, TARGETS, WEIGHTS], {"reduction": "sum"})
    assert attributes_of(loss) == {"reduction": "sum", "ignore_index": -100}
    changed = with_attributes(loss, [SCORES, TARGETS, WEIGHTS], {"ignore_index": 1})
    assert attributes_of(changed) == {"reduction": "sum", "ignore_index": 1}
    assert changed.args[2].same_as(WEIGHTS)
