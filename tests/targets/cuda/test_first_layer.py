"""Convolutions whose data have few channels: padded, so that one asynchronous copy moves those of a place."""

from __future__ import annotations

from typing import Any

from programs import program
from targets.cuda.simulating import compiled
from targets.device_cases import conv, nn
from tvm.relax import op


def layer(builder: Any, x: Any) -> Any:
    return builder.emit(op.permute_dims(builder.emit(nn.relu(conv(builder, x, strides=2, size=5))), [0, 2, 3, 1]))


def test_few_channels_are_padded_to_what_one_copy_moves() -> None:
    """Halves of three channels were loaded one by one: 53 instructions for each of tensor cores, where 5 do."""
    made = compiled(program(layer, (2, 3, 64, 64)), {"kind": "cuda", "arch": "sm_90"}, precision="float16")
    (product,) = (source for source in made.sources.values() if "mma.sync" in source)
    assert "((half*)shared_ptr)[" not in product, "an element by itself"
