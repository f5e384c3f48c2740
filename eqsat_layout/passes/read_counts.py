"""How often variables are read.

In: a Relax function. Out: numbers of readers; those inside of a branch may count twice.
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
