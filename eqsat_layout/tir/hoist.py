"""Lifts layout rewrites out of a PrimFunc, from before and after its computation.

In: a PrimFunc with blocks that only re-lay-out one operand or a result; its computation itself need not be understood.
Out: :class:`Hoisted`, or ``None`` where there is nothing to lift. Maps and crops are always lifted: they cost the same
outside, where they may vanish. A pad is lifted only where a block is annotated as a rewrite: the halo of a convolution
is a pad too, and outside it is one copy more, which only pays off if the producer writes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.layout_rewrite import LayoutRewrite
from eqsat_layout.tir.rewrite_form import join, read_primfunc

PREPROC_ANNOTATION = "meta_schedule.layout_rewrite_preproc"
"""How TVM marks a block that only re-lays-out an operand."""


@dataclass(frozen=True)
class Hoisted:
    """``func`` without its rewrites: ``pre[i]`` takes operand ``i`` to what it reads, ``post[j]`` the ``j``-th tensor
    that it writes to result ``j``. Its parameters stand in the old order: ``operands`` of them, then ``results``.
    """

    pre: Mapping[int, LayoutRewrite]
    func: Any
    post: Mapping[int, LayoutRewrite]
    operands: int
    results: int


def hoist(func: Any) -> Hoisted | None:
    """``func`` with its leading and trailing layout rewrites lifted out; ``None`` where there are none.

    A function that is nothing but rewrites is one itself, so nothing is lifted out of it.
    """
    state = _Lifting.of(func)
    if state is None:
        return None
    while state.lift_one():
        pass
    return state.hoisted()


def moves_before_or_after(computation: Computation) -> bool:
    """Whether there may be something to lift out of a PrimFunc without annotations that computes this: a stage that
    gives what it reads, and pads nothing."""
    stores = [store for block in computation.blocks for store in block.stores]
    return len(computation.blocks) > 1 and any(store.value.op == "load" for store in stores)


@dataclass
class _Nest:
    """A statement under the root, and how it touches buffers. ``opaque`` are touched in a way that isn't understood."""

    statement: Any
    loads: frozenset[Any]
    stores: frozenset[Any]
    opaque: frozenset[Any]
    is_annotated: bool

    @property
    def touched(self) -> frozenset[Any]:
        return self.loads | self.stores | self.opaque


class _Lifting:
    def __init__(self, func: Any, nests: list[_Nest]) -> None:
        self.func, self.nests = func, nests
        self.root = func.body.block
        self.params = list(func.params)
        self.internal = list(self.root.alloc_buffers)
        buffers = [p for p in self.params if type(p.ty) is tirx.BufferType]
        written = {b for nest in nests for b in nest.stores | nest.opaque}
        self.operands = [p for p in buffers if p not in written]
        self.results = [p for p in buffers if p in written]
        self.pre: dict[int, LayoutRewrite] = {}
        self.post: dict[int, LayoutRewrite] = {}

    @staticmethod
    def of(func: Any) -> _Lifting | None:
        """None for a function of another form than a root block over a sequence of statements."""
        if type(func.body) is not s_tir.stmt.SBlockRealize:
            return None
        root = func.body.block
        if root.iter_vars or root.match_buffers or root.init is not None:
            return None
        statements = list(root.body.seq) if type(root.body) is tirx.SeqStmt else [root.body]
        if len(statements) < 2:
            return None
        state = _Lifting(func, [_read_nest(s) for s in statements])
        buffers = [p for p in func.params if type(p.ty) is tirx.BufferType]
        return state if buffers == [*state.operands, *state.results] else None  # else something is written in place

    def lift_one(self) -> bool:
        """Lifts one rewrite, if there is one to lift beside something that stays."""
        if len(self.nests) < 2:
            return False
        return any(self._lift_leading(n) or self._lift_trailing(n) for n in self.nests)

    def hoisted(self) -> Hoisted | None:
        if all(rewrite.is_identity for rewrite in (*self.pre.values(), *self.post.values())):
            return None  # the pad stage of a convolution without padding is a plain copy
        if len(self.nests) == 1 and self._rewrite(self.nests[0]) is not None:
            return None
        if _sizes_told(self.func.params) - _sizes_told(self.params):
            return None  # a symbolic size that only a buffer's old shape says
        body = [n.statement for n in self.nests]
        root = s_tir.SBlock(
            [],
            [],
            [],
            self.root.name_hint,
            body[0] if len(body) == 1 else tirx.SeqStmt(body),
            alloc_buffers=self.internal,
            annotations=self.root.annotations,
        )
        realize = s_tir.SBlockRealize([], True, root)
        func = tirx.PrimFunc(self.params, realize, ret_type=self.func.ret_type, attrs=self.func.attrs)
        return Hoisted(self.pre, func, self.post, len(self.operands), len(self.results))

    def _lift_leading(self, nest: _Nest) -> bool:
        """A block that reads one operand, which nothing else touches, and alone fills an internal buffer."""
        if len(nest.loads) != 1 or len(nest.stores) != 1:
            return False
        (source,), (target,) = nest.loads, nest.stores
        others = [n for n in self.nests if n is not nest]
        if source not in self.operands or target not in self.internal:
            return False
        if any(source in n.touched or target in n.stores | n.opaque for n in others):
            return False
        rewrite = self._lifted(nest)
        place = self.operands.index(source)
        known = self.pre.get(place)
        joined = rewrite if known is None or rewrite is None else join(known, rewrite)
        if joined is None:
            return False
        self.pre[place] = joined
        self._replace(nest, source, target)
        self.operands[place] = target
        return True

    def _lift_trailing(self, nest: _Nest) -> bool:
        """A block that alone writes a result, which nothing reads, from an internal buffer that is final by then."""
        if len(nest.loads) != 1 or len(nest.stores) != 1:
            return False
        (source,), (target,) = nest.loads, nest.stores
        if source not in self.internal or target not in self.results:
            return False
        after = self.nests[self.nests.index(nest) + 1 :]
        if any(target in n.touched for n in self.nests if n is not nest) or any(source in n.touched for n in after):
            return False
        if any(source in n.opaque for n in self.nests):
            return False
        rewrite = self._lifted(nest)
        place = self.results.index(target)
        known = self.post.get(place)
        joined = rewrite if known is None or rewrite is None else join(rewrite, known)
        if joined is None:
            return False
        self.post[place] = joined
        self._replace(nest, target, source)
        self.results[place] = source
        return True

    def _replace(self, nest: _Nest, param: Any, buffer: Any) -> None:
        """Takes ``nest`` out; the internal ``buffer`` becomes the parameter."""
        self.nests = [n for n in self.nests if n is not nest]
        self.params = [buffer if p == param else p for p in self.params]
        self.internal = [b for b in self.internal if b != buffer]

    def _lifted(self, nest: _Nest) -> LayoutRewrite | None:
        """The rewrite that the block is, if it is one that is worth lifting."""
        if not nest.is_annotated and _is_filled(nest):
            return None
        rewrite = self._rewrite(nest)
        if rewrite is None or (rewrite.is_padding and not nest.is_annotated):
            return None
        return rewrite

    def _rewrite(self, nest: _Nest) -> LayoutRewrite | None:
        """Read off the block as a PrimFunc of its own."""
        if nest.opaque or len(nest.loads) != 1 or len(nest.stores) != 1:
            return None
        params = [*nest.loads, *nest.stores, *self._scalars()]
        if any(_scope(b) != "global" for b in params[:2]):
            return None
        root = s_tir.SBlock([], [], [], "root", nest.statement)
        return read_primfunc(tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root)))

    def _scalars(self) -> list[Any]:
        return [p for p in self.func.params if type(p.ty) is not tirx.BufferType]


def _is_filled(nest: _Nest) -> bool:
    """It stores more elements than it loads from: as a rewrite it pads, which need not be read off it."""
    ((loaded,), (stored,)) = nest.loads, nest.stores
    shapes = loaded.ty.shape, stored.ty.shape
    if not all(isinstance(extent, tirx.IntImm) for shape in shapes for extent in shape):
        return False
    return math.prod(map(int, shapes[1])) > math.prod(map(int, shapes[0]))


def _sizes_told(params: Iterable[Any]) -> set[Any]:
    """The variables that are the extent of an axis of a parameter."""
    buffers = [p for p in params if type(p.ty) is tirx.BufferType]
    return {extent for p in buffers for extent in p.ty.shape if isinstance(extent, ir.Var)}


def _scope(buffer: Any) -> str:
    return str(buffer.ty.storage_scope) or "global"


def _read_nest(statement: Any) -> _Nest:
    loads: set[Any] = set()
    stores: set[Any] = set()
    opaque: set[Any] = set()
    annotated: list[bool] = []

    def call(expr: Any) -> None:
        name = str(getattr(expr.op, "name", ""))
        for arg in expr.args:
            if isinstance(arg, ir.Var) and type(arg.ty) is tirx.BufferType:
                opaque.add(arg)
            elif isinstance(arg, tvm.ir.expr.TensorLoad) and "address_of" in name:
                opaque.add(arg.source)

    def block(node: Any) -> None:
        annotated.append(bool(node.annotations.get(PREPROC_ANNOTATION, False)))
        opaque.update(match.source.source for match in node.match_buffers)

    tvm_ffi.structural_walk(
        statement,
        (
            (tvm.ir.expr.TensorLoad, lambda load: _note(loads, [load.source])),
            (tirx.BufferStore, lambda store: _note(stores, [store.buffer])),
            (ir.Call, call),
            (s_tir.SBlock, block),
        ),
    )
    return _Nest(statement, frozenset(loads), frozenset(stores), frozenset(opaque), any(annotated))


def _note(found: set[Any], buffers: Iterable[Any]) -> None:
    found.update(buffers)
