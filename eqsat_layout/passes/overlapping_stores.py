"""Tensors that share no memory with what they are made of, where elements are stored twice.

In: loops over flat memory. Out: the same, in which TVM's ``StorageRewrite`` sees what it must not do: where the last
vector of a row begins earlier than the one before ends, some elements are worked out again, of operands that have to
be there still. It lets a tensor take the memory of one that is read at the same places, and never again.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.tir.structural import body_pass, nodes_of

_APART: Final = "extern_scope"
"""Of a statement inside of which TVM does not look, and so shares nothing."""


def apart_from_operands(storage_rewrite: Any) -> Any:
    """A pass: ``storage_rewrite`` that does so."""
    marked, plain = body_pass("MarkOverlaps", (tirx.BufferStore, _marked)), body_pass("Plain", (tirx.AttrStmt, _plain))
    return tvm.transform.Sequential([marked, storage_rewrite, plain], name="StorageApart")


def _marked(store: Any) -> Any:
    overlaps = any(nodes_of(index, tirx.Min) for index in store.indices)
    reads = overlaps and nodes_of(store.value, tvm.ir.TensorLoad)
    return tirx.AttrStmt(tvm.ir.StringImm(""), _APART, tirx.IntImm("int32", 1), store) if reads else store


def _plain(statement: Any) -> Any:
    return statement.body if str(statement.attr_key) == _APART else statement
