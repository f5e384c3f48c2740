"""Which ops torch writes in other ops before the frontend sees a program.

In: ops that can't be taken as one. Out: tables for ``ExportedProgram.run_decompositions``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from eqsat_layout.readers.torch import attention
from eqsat_layout.readers.torch.recurrent import KEPT


def decompositions(more: Iterable[Any]) -> Any:
    """torch's own table for exported programs, without ops that have one kernel here, and with ``more`` and
    those that :mod:`.attention` writes out."""
    torch = importlib.import_module("torch")
    table = importlib.import_module("torch.export").default_decompositions()
    for name in KEPT:
        packet, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    table[torch.ops.aten.scaled_dot_product_attention.default] = attention.scaled_dot_product_attention
    table[torch.ops.aten._transformer_encoder_layer_fwd.default] = attention.encoder_layer
    table[torch.ops.aten._native_multi_head_attention.default] = attention.multi_head_attention
    everything = all_decompositions()
    for op in more:
        table[op] = everything[op]
    return table


def all_decompositions() -> Mapping[Any, Any]:
    """The decompositions of all ops that torch has any for, its Python references included."""
    for name in ("", ".special", ".nn.functional", ".linalg", ".fft"):
        importlib.import_module(f"torch._refs{name}")  # which put their definitions into the table
    table: Mapping[Any, Any] = importlib.import_module("torch._decomp").decomposition_table
    return table
