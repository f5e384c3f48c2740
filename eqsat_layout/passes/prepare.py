"""Inference preparation: what makes an imported model plain before layouts are chosen.

In: a Relax module as a frontend gives it. Out: batch norms as convolution weights and biases, no broadcasts in front of
calls that do without, constant arithmetic done.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from eqsat_layout.notes import Notes
from eqsat_layout.passes.batch_norms import fold_batch_norms
from eqsat_layout.passes.broadcasts import skip_broadcasts
from eqsat_layout.passes.circular_sizes import check_sizes
from eqsat_layout.passes.einsums_in_pairs import einsums_in_pairs
from eqsat_layout.passes.fitting_sizes import check_sizes_fit
from eqsat_layout.passes.fold_constants import fold_constants
from eqsat_layout.passes.frozen_names import with_frozen_names
from eqsat_layout.passes.known_shapes import write_known_shapes
from eqsat_layout.passes.literal_operands import with_literals_left_out
from eqsat_layout.passes.many_operands import join_in_steps
from eqsat_layout.passes.quantised.byte_products import multiply_bytes
from eqsat_layout.passes.quantised.byte_weights import keep_byte_weights
from eqsat_layout.passes.summed_convolutions import sum_convolutions
from eqsat_layout.passes.training import write_out_training
from eqsat_layout.tir.structural import nodes_of


def prepare(
    mod: tvm.IRModule,
    notes: Notes,
    *,
    has_byte_products: bool = False,
    has_signed_products: bool = False,
    byte_rows: int = 0,
    sums_branches: bool = False,
    pairs_operands: bool = False,
    leaves_literals_out: bool = False,
) -> tvm.IRModule:
    """``mod`` for inference, numerically the same up to rounding. The input is not changed.

    ``has_byte_products``: what bytes stand for is multiplied as these bytes; ``has_signed_products``: where these have
    signs, too. ``byte_rows``: of data that is multiplied by weights that stay bytes, at most. ``sums_branches``:
    convolutions whose results are added up become one. ``pairs_operands``: einsums of several are done two at a time,
    which adds up in another order. ``leaves_literals_out``: ops of the numbers 0 and 1 are what TVM makes of them.
    Functions keep their names and signatures. A pass of TVM's that fails on the module is left out, with a note.
    """
    check_sizes(mod)
    passes, given = relax.transform, mod
    mod = check_sizes_fit(mod)
    mod = with_literals_left_out(mod) if leaves_literals_out else mod
    mod = einsums_in_pairs(mod) if pairs_operands else mod
    mod = join_in_steps(write_known_shapes(write_out_training(mod)))
    mod = fold_batch_norms(_after(passes.CanonicalizeBindings(), mod, notes))
    for step in (passes.DecomposeOpsForInference(), passes.CanonicalizeBindings()):
        mod = _after(step, mod, notes)
    mod = multiply_bytes(mod, may_have_signs=has_signed_products) if has_byte_products else mod
    mod = keep_byte_weights(mod, byte_rows) if byte_rows else mod
    mod = fold_constants(skip_broadcasts(mod), notes)
    return with_frozen_names(sum_convolutions(mod) if sums_branches else mod, given)


def _after(step: Any, mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
    """What the pass makes of ``mod``; ``mod`` itself where it fails or gives what is not well formed."""
    name = str(step.info.name)
    try:
        changed: tvm.IRModule = step(mod)
        relax.analysis.well_formed(changed)
    except (tvm.error.InternalError, ValueError, TypeError, RuntimeError) as error:
        notes.fault(f"TVM's pass {name} is left out", error)
        return mod
    if _unshaped(changed) > _unshaped(mod):
        notes.add(f"TVM's pass {name} is left out, because it forgets the shapes of values that branches give")
        return mod
    return changed


def _unshaped(mod: tvm.IRModule) -> int:
    """Values of unknown shape in functions with branches."""
    functions = [f for f in mod.functions.values() if isinstance(f, relax.Function) and nodes_of(f, relax.If)]
    bindings = [binding for f in functions for binding in nodes_of(f, relax.VarBinding, relax.MatchCast)]
    types = [binding.var.ty for binding in bindings]
    return sum(isinstance(ty, relax.TensorType) and ty.shape is None for ty in types)
