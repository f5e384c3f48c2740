"""Calls joined to kernels, whatever memories their operands and results lie in.

In: a legalised module whose PrimFuncs say the scopes of their buffers. Out: the same with one PrimFunc per group of
TVM's; what lies between the calls of a group lies nowhere.
"""

from __future__ import annotations

import tvm

from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse


def joined(mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
    """See the module."""
    return fuse(mod, notes)
