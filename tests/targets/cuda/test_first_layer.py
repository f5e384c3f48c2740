"""Convolutions whose data have few channels: padded, so that one asynchronous copy moves those of a place."""

from __future__ import annotations

from typing import Any

import numpy as np
from compare import inputs_for, machine
from programs import program
from targets.cuda.simulating import compiled
from targets.device_cases import conv, nn

from eqsat_layout.soundness.cuda.driver import simulated


def two_layers(builder: Any, x: Any) -> Any:
    return conv(builder, builder.emit(nn.relu(conv(builder, x, strides=2, size=5))), 1)


def test_few_channels_are_padded_to_what_one_copy_moves() -> None:
    """Halves of three channels were loaded one by one: 53 instructions for each of tensor cores, where 5 do."""
    mod = program(two_layers, (2, 3, 64, 64))
    made = compiled(mod, {"kind": "cuda", "arch": "sm_90"}, precision="float16")
    products = [source for source in made.sources.values() if "mma.sync" in source]
    assert len(products) == 2
    assert not any("((half*)shared_ptr)[" in source for source in products), "an element by itself"
    inputs = inputs_for(mod["main"], 0)
    expected = machine(mod)["main"](*inputs).numpy()
    got = simulated(made, 2)(*[one.numpy() for one in inputs])
    assert np.abs(got - expected).max() < 3e-3 * np.abs(expected).max()
