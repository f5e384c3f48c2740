"""Fills are equal where they are the same number."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import tvm
from programs import program
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.graph.borders import Border
from eqsat_layout.maps import Format, IndexMap, exact_fill
from eqsat_layout.soundness.programs.check import unscheduled_machine


def test_minus_zero_is_not_zero() -> None:
    minus = exact_fill(-0.0)
    assert not [zero for zero in (0.0, 0, minus) if zero == minus and zero is not minus]
    assert minus == exact_fill(-0.0) == -0.0
    assert pickle.loads(pickle.dumps(minus)) == minus
    assert exact_fill(0.0) == 0
    padded = [Format.make(IndexMap.identity((4,)), padding=[(0, 1)], fill=fill) for fill in (0.0, -0.0)]
    assert padded[0] != padded[1]
    assert not padded[0].same_bytes(padded[1])
    assert padded[1] == Format.from_key(padded[1].key)
    assert len({Border((3,), ((0, 1),), fill) for fill in (0.0, -0.0, 0.0)}) == 2


def test_pads_of_both_zeros_are_two() -> None:
    """They became one pad, of the one or the other."""

    def pads(b: Any, x: Any) -> Any:
        return R.nn.pad(b.emit(R.nn.pad(x, [1, 0, 0, 0], pad_value=-0.0)), [0, 1, 0, 0], pad_value=0.0)

    machine = unscheduled_machine(eqsat_layout.optimize(program(pads, (2, 4))))
    found = machine["main"](tvm.runtime.tensor(np.ones((2, 4), "float32"))).numpy()
    assert np.signbit(found).all(axis=1).tolist() == [True, False, False, False]
