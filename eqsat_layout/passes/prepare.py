"""Inference preparation: what makes an imported model plain before layouts are chosen (targets room).

In: a Relax module as a frontend gives it. Out: batch norms as convolution weights and biases, no broadcasts in front of
calls that do without, constant arithmetic done.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from eqsat_layout.passes.broadcasts import skip_broadcasts
from eqsat_layout.passes.fold_constants import fold_constants


def prepare(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` for inference, numerically the same up to rounding; ``mod`` itself where TVM's passes fail on it.

    Functions keep their names and signatures. The input is not changed.
    """
    passes = relax.transform
    try:
        prepared: Any = tvm.transform.Sequential(
            [
                passes.CanonicalizeBindings(),
                passes.FoldBatchnormToConv2D(),
                passes.DecomposeOpsForInference(),
                passes.CanonicalizeBindings(),
            ]
        )(mod)
        result = fold_constants(skip_broadcasts(prepared))
        relax.analysis.well_formed(result)
        return result
    except Exception:
        return mod
