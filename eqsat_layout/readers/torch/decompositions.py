"""Which ops torch writes in other ops before the frontend sees a program.

In: ops that can't be taken as one. Out: tables for ``ExportedProgram.run_decompositions``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.torch import attention
from eqsat_layout.readers.torch.recurrent import KEPT

_FOREACH: Final = "_foreach_"

_WRITERS: Final = ("as_strided_scatter.default", "diagonal_scatter.default")
"""Ops that torch writes in others that write to memory."""


def decompositions(more: Iterable[Any]) -> Any:
    """torch's own table for exported programs, without ops that have one kernel here, and with ``more`` and
    those that :mod:`.attention` writes out."""
    torch = importlib.import_module("torch")
    table = importlib.import_module("torch.export").default_decompositions()
    for name in (*KEPT, *_WRITERS):
        packet, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    table[torch.ops.aten.scaled_dot_product_attention.default] = attention.scaled_dot_product_attention
    table[torch.ops.aten._transformer_encoder_layer_fwd.default] = attention.encoder_layer
    table[torch.ops.aten._native_multi_head_attention.default] = attention.multi_head_attention
    table[torch.ops.aten.unfold_backward.default] = _windows_written
    table.update(_for_each(torch))
    everything = all_decompositions()
    for op in more:
        table[op] = everything[op]
    return table


def _windows_written(windows: Any, sizes: Any, dim: int, size: int, step: int) -> Any:
    """What a write to ``x.unfold(...)`` leaves of ``x``. torch takes it for a gradient: elements in no window are 0,
    and those in several are added up."""
    if step != size or sizes[dim] % size:
        raise EqsatError(
            f"a write to windows of {size} that move by {step} along {sizes[dim]} elements (unfold) is not done"
        )
    return windows.movedim(-1, dim % len(sizes) + 1).reshape(sizes)


def _for_each(torch: Any) -> dict[Any, Any]:
    """Ops on lists of tensors, each of which is another op on tensors: ``_foreach_add``, but those that write."""
    found = {}
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        one = getattr(torch.ops.aten, packet.removeprefix(_FOREACH), None) if packet.startswith(_FOREACH) else None
        if one is not None and not packet.endswith("_") and "out" not in overload:
            found[getattr(getattr(torch.ops.aten, packet), overload or "default")] = _each(one)
    return found


def _each(op: Any) -> Any:
    """``op`` of every element of the lists; what it takes by name only, lists of tensors may have behind the others."""
    arguments = op.default._schema.arguments if hasattr(op, "default") else []
    by_name = [one.name for one in arguments if one.kwarg_only]
    count = len(arguments) - len(by_name) or None

    def made(*given: Any, **named: Any) -> Any:
        length = max(len(one) for one in given if isinstance(one, list | tuple))
        lists = [one if isinstance(one, list | tuple) else [one] * length for one in given]
        rows = zip(*lists, strict=True)
        return [
            op(*row[:count], **dict(zip(by_name, row[count:] if count else (), strict=False)), **named) for row in rows
        ]

    return made


def all_decompositions() -> Mapping[Any, Any]:
    """The decompositions of all ops that torch has any for, its Python references included."""
    for name in ("", ".special", ".nn.functional", ".linalg", ".fft"):
        importlib.import_module(f"torch._refs{name}")  # which put their definitions into the table
    table: Mapping[Any, Any] = importlib.import_module("torch._decomp").decomposition_table
    return table
