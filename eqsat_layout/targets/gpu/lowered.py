"""Kernels as text, and the hosts that launch them.

In: a module of host and device functions. Out: :class:`Lowered`; the device's part of a module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx


@dataclass(frozen=True)
class Lowered:
    """``host``: functions by name, as TIR in front of TVM's calling convention. ``sources``: by kernel, each a whole
    file."""

    host: Mapping[str, Any]
    sources: Mapping[str, str]


def device_part(mod: tvm.IRModule, kind: str) -> tvm.IRModule:
    """The functions that run on targets of that kind."""
    return split_by_kind(mod, kind)[1]


def split_by_kind(mod: tvm.IRModule, kind: str) -> tuple[tvm.IRModule, tvm.IRModule]:
    """Functions in TVM's calling convention: those that don't run on targets of that kind, and those that do."""

    def is_device(func: Any) -> bool:
        return str(func.attrs["target"].kind.name) == kind

    packed = tirx.transform.MakePackedAPI()(mod)
    return tirx.transform.Filter(lambda func: not is_device(func))(packed), tirx.transform.Filter(is_device)(packed)
