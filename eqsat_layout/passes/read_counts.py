"""How often variables are read, and which of them outside of the block that makes them.

In: a Relax function. Out: numbers of readers, those inside of a branch may count twice; results of blocks of dataflow.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tvm import relax

from eqsat_layout.tir.structural import nodes_of


def read_counts(function: Any) -> Counter[Any]:
    """Bindings, of ``match_cast`` too, and results that read each variable."""
    values = [binding.value for binding in nodes_of(function, relax.VarBinding, relax.MatchCast)]
    values += [sequence.body for sequence in nodes_of(function, relax.SeqExpr)]
    return Counter(var for value in values for var in relax.analysis.free_vars(value))


def results_of_blocks(function: Any) -> set[Any]:
    """What blocks of dataflow give to what follows them: there it is unknown what these variables are made of."""
    blocks = [block for sequence in nodes_of(function, relax.SeqExpr) for block in sequence.blocks]
    if len(blocks) == 1:
        return set()
    inside = (binding.var for block in blocks if isinstance(block, relax.DataflowBlock) for binding in block.bindings)
    return {var for var in inside if not isinstance(var, relax.DataflowVar)}
