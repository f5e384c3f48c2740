"""Names of the model's nodes: what a node became is called as it is."""

from __future__ import annotations

from programs import constant, program
from tvm import relax
from tvm.relax import op

from eqsat_layout.readers.naming import with_names


def test_the_convolution_of_a_bias_is_called_as_the_sum() -> None:
    """Of a convolution with a bias only the sum had the name of torch's or ONNX's node: the convolution was ``lv``."""
    mod = program(
        lambda builder, x: builder.emit(
            op.add(builder.emit(op.nn.conv2d(builder.emit(op.nn.relu(x)), constant(8, 8, 1, 1))), constant(1, 8, 1, 1))
        ),
        (1, 8, 6, 6),
    )
    relu, conv, total = [binding.var for binding in mod["main"].body.blocks[0].bindings][:3]
    named = with_names(mod, {total: "stem.conv", relu: ""})
    assert isinstance(conv, relax.Var)
    names = [str(binding.var.name) for binding in named["main"].body.blocks[0].bindings]
    assert names[:3] == [str(relu.name), "stem.conv", "stem.conv"]
