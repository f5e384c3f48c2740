"""TVM's passes for kernels that launch threads or work items, with ours that mend them.

In: a module without blocks that have predicates. Out: what CUDA and OpenCL have in common: :func:`vectorised`, then
:func:`launching`; each puts passes of its own before, between and behind.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import s_tir, tirx

from eqsat_layout.passes.clamped_casts import clamped_casts
from eqsat_layout.passes.index_bits import indices_in_bits
from eqsat_layout.passes.let_narrow_floats import with_let_values
from eqsat_layout.passes.let_vectors import serialise_let_vectors
from eqsat_layout.passes.narrow_places import narrow_places
from eqsat_layout.targets.gpu.kernels.open_sizes import open_sizes_in_32_bits
from eqsat_layout.tir.negated_dividends import dividends_that_count_up

_INDEX_BITS: Final = 32


def vectorised(*, is_checked: bool = True) -> list[Any]:
    """From blocks without predicates to loops over flat memory, those along vectors in vectors.

    ``is_checked``: the host is ours, and refuses sizes that need more than 32 bits.
    """
    return [
        s_tir.transform.LowerOpaqueBlock(),
        dividends_that_count_up(),
        narrow_places(),
        tirx.transform.FlattenBuffer(),
        with_let_values(tirx.transform.BF16ComputeLegalize()),
        clamped_casts(),
        *([open_sizes_in_32_bits()] if is_checked else []),
        indices_in_bits(_INDEX_BITS),
        serialise_let_vectors(),  # what the next one would give the last lane's value
        tirx.transform.VectorizeLoop(),
    ]


def launching() -> list[Any]:
    """To a host and what it launches."""
    return [
        tirx.transform.UnrollLoop(),
        tirx.transform.StmtSimplify(),
        s_tir.transform.RewriteUnsafeSelect(),
        tirx.transform.VerifyMemory(),
        tirx.transform.AnnotateEntryFunc(),
        tirx.transform.SplitHostDevice(),
    ]
