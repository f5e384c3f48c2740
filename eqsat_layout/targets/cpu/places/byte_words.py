"""Reductions over products of bytes as reductions over words of four bytes.

In: a PrimFunc with a reduction of products of unsigned and signed bytes. Out: one over words of 32 bits with a quarter
of the steps, and the way back. It is scheduled like any 32-bit product; each multiply-add then becomes one instruction
for four products (:mod:`eqsat_layout.targets.cpu.dot_products`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm.tirx.buffer import buffer_data

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.dot_products import BYTES_OF_WORD, byte_products
from eqsat_layout.targets.cpu.places.box import Box, boxes_of, with_boxes
from eqsat_layout.targets.schedules.accesses import as_int, depends_on
from eqsat_layout.tir.blocks import block_of, function_over, is_load_of, statements_of, store_of, storing_block
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import changed_block, nodes_of, structural_map, substitute

_WORD, _UNSIGNED, _SIGNED = "int32", "uint8", "int8"


@dataclass(frozen=True)
class WordKernel:
    """``func`` over words.

    ``params``: those of the original by number, where they differ. ``unsigned``, ``signed``: names of the buffers whose
    words are of such bytes.
    """

    func: Any
    params: dict[int, Any]
    unsigned: frozenset[str]
    signed: str

    def restored(self, func: Any) -> Any:
        """``func``, which is :attr:`func` scheduled, over the original's parameters, with products of bytes."""
        body = structural_map(func.body, (tirx.BufferStore, self._on_store))
        if any(self._names(product) & {*self.unsigned, self.signed} for product in nodes_of(body, tirx.Mul)):
            raise Refused("a product that is added to no sum")
        aliases = [tirx.DeclBuffer(func.params[n], data=buffer_data(old)) for n, old in self.params.items()]
        root = body.block
        inside = tirx.SeqStmt([*aliases, *(root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body])])
        whole = type(body)(list(body.iter_values), body.predicate, changed_block(root, body=inside))
        params = [self.params.get(number, param) for number, param in enumerate(func.params)]
        return tirx.PrimFunc(params, whole, func.ret_type, func.attrs)

    def _on_store(self, store: Any) -> Any:
        value = store.value
        if not isinstance(value, tirx.Add) or str(value.ty.dtype) != _WORD:
            return store
        for total, product in ((value.a, value.b), (value.b, value.a)):
            if is_load_of(total, store) and isinstance(product, tirx.Mul) and self.signed in self._names(product):
                unsigned, signed = self._in_order(product)
                return tirx.BufferStore(store.buffer, byte_products(total, unsigned, signed), list(store.indices))
        return store

    def _in_order(self, product: Any) -> tuple[Any, Any]:
        """The unsigned factor first."""
        for first, second in ((product.a, product.b), (product.b, product.a)):
            if self._names(first) & self.unsigned and self._names(second) == {self.signed}:
                return first, second
        raise Refused("factors that were moved")

    def _names(self, expr: Any) -> set[str]:
        return {str(load.source.name) for load in nodes_of(expr, ir.TensorLoad)}


def in_words(func: Any) -> WordKernel:
    """Refused where there is no such reduction, or its bytes do not lie so."""
    return _Rewriter(func).rewritten()


@dataclass
class _Rewriter:
    func: Any
    words: dict[Any, Any] = field(default_factory=dict)
    """By buffer the one of words."""

    def rewritten(self) -> WordKernel:
        if not isinstance(self.func.body, s_tir.SBlockRealize):
            raise Refused("a function of more than blocks")
        statements = statements_of(self.func)
        blocks = [block_of(statement) for statement in statements]
        sums = [(block, *factors) for block in blocks if (factors := _factors_of(block)) is not None]
        if len(sums) != 1:
            raise Refused("not one reduction of products of bytes")
        ((block, data, weights),) = sums
        made = {id(block): self._reduction(block, data, weights)}
        self._follow(data.source, blocks, made)
        if weights.source not in self.func.params:
            raise Refused("weights that are made in the kernel")
        for block in blocks:
            touched = {load.source for load in nodes_of(block.body, ir.TensorLoad)} & set(self.words)
            if touched and id(block) not in made:
                raise Refused("bytes that others read too")
        stages = [made.get(id(block), statement) for block, statement in zip(blocks, statements, strict=True)]
        allocated = [self.words.get(buffer, buffer) for buffer in self.func.body.block.alloc_buffers]
        params = [self.words.get(param, param) for param in self.func.params]
        func = function_over(self.func, stages, allocated, params)
        boxes = boxes_of(self.func)
        if boxes:
            func = with_boxes(func, {number: self._box(number, box) for number, box in boxes.items()})
        changed = {number: old for number, old in enumerate(self.func.params) if old in self.words}
        signed = str(self.words[weights.source].name)
        return WordKernel(func, changed, frozenset(str(words.name) for words in self.words.values()) - {signed}, signed)

    def _box(self, number: int, box: Box) -> Box:
        param = self.func.params[number]
        if param not in self.words:
            return box
        if len(self.words[param].ty.shape) < len(param.ty.shape):
            raise Refused("a box of rows of one word")
        return box.in_pieces(BYTES_OF_WORD)

    def _reduction(self, block: Any, data: Any, weights: Any) -> Any:
        axis, byte, values = self._split(block, (data, weights))
        places = [self._word(load, values, byte) for load in (data, weights)]
        store = store_of(block)
        target = tirx.BufferLoad(store.buffer, list(store.indices))
        body = tirx.BufferStore(store.buffer, target + places[0] * places[1], list(store.indices))
        iters = [self._quarter(one, values) if one.same_as(axis) else one for one in block.iter_vars]
        return storing_block(iters, block.name_hint, body, block.init, block.annotations)

    def _split(self, block: Any, loads: Sequence[Any]) -> tuple[Any, Any, dict[Any, Any]]:
        """The axis whose steps are four to a word: it, the number in a word, and its value by both."""
        for axis in block.iter_vars:
            extent = as_int(axis.dom.extent)
            if int(axis.iter_type) == tirx.IterVar.CommReduce and extent and extent % BYTES_OF_WORD == 0:
                byte, values = self._halves(axis)
                try:
                    for load in loads:
                        self._word(load, values, byte)
                except Refused:
                    continue
                return axis, byte, values
        raise Refused("no step of the reduction has four neighbours in both factors")

    def _halves(self, axis: Any) -> tuple[Any, dict[Any, Any]]:
        dtype = axis.var.ty
        word, byte = ir.Var(f"{axis.var.name}_word", dtype), ir.Var("byte", dtype)
        return byte, {axis.var: word * tirx.const(BYTES_OF_WORD, dtype.dtype) + byte}

    def _quarter(self, axis: Any, values: dict[Any, Any]) -> Any:
        (word,) = [var for var in nodes_of(values[axis.var], ir.Var) if var.name != "byte"]
        dtype = str(word.ty.dtype)
        domain = ir.Range(tirx.const(0, dtype), tirx.const(int(axis.dom.extent) // BYTES_OF_WORD, dtype))
        return tirx.IterVar(domain, word, axis.iter_type)

    def _word(self, load: Any, values: dict[Any, Any], byte: Any) -> Any:
        """The word whose bytes are the loads at all values of ``byte``, which are neighbours."""
        return tirx.BufferLoad(*self._word_place(load.source, list(load.indices), values, byte))

    def _word_place(self, buffer: Any, indices: list[Any], values: dict[Any, Any], byte: Any) -> tuple[Any, list[Any]]:
        analyzer = tvm.sym.Analyzer()
        dtype = str(byte.ty.dtype)
        analyzer.bind(byte, ir.Range(tirx.const(0, dtype), tirx.const(BYTES_OF_WORD, dtype)))
        *outer, last = [analyzer.simplify(substitute(index, values)) for index in indices]
        start = analyzer.simplify(last - byte)
        four = tirx.const(BYTES_OF_WORD, str(last.ty.dtype))
        is_row = not any(depends_on(index, byte) for index in (*outer, start))
        if not is_row or as_int(analyzer.simplify(start % four)) != 0:
            raise Refused("bytes that are no neighbours")
        words = self._words_of(buffer)
        place = [] if len(words.ty.shape) < len(buffer.ty.shape) else [analyzer.simplify(start // four)]
        return words, [*outer, *place]

    def _words_of(self, buffer: Any) -> Any:
        """A row of one word is no axis of its own."""
        if buffer not in self.words:
            *outer, last = buffer.ty.shape
            extent = as_int(last)
            if extent is None or extent % BYTES_OF_WORD or (extent == BYTES_OF_WORD and not outer):
                raise Refused("rows that are no words")
            row = [] if extent == BYTES_OF_WORD else [tirx.const(extent // BYTES_OF_WORD, last.ty.dtype)]
            scope = buffer.scope()
            self.words[buffer] = tirx.decl_buffer(
                [*outer, *row], _WORD, f"{buffer.name}_words{len(self.words)}", scope=scope, layout=None
            )
        return self.words[buffer]

    def _follow(self, buffer: Any, blocks: Sequence[Any], made: dict[int, Any]) -> None:
        """What copies bytes to where they are read, with a border or zeros between, copies words."""
        while buffer not in self.func.params:
            writers = [b for b in blocks if any(s.buffer.same_as(buffer) for s in nodes_of(b.body, tirx.BufferStore))]
            if len(writers) != 1:
                raise Refused("bytes that several stages make")
            made[id(writers[0])], buffer = self._copy(writers[0])

    def _copy(self, block: Any) -> tuple[Any, Any]:
        store = store_of(block)
        loads = nodes_of(store.value, ir.TensorLoad)
        last = block.iter_vars[-1]
        if block.init is not None or len(loads) != 1 or (as_int(last.dom.extent) or 1) % BYTES_OF_WORD:
            raise Refused("bytes that are computed in the kernel")
        byte, values = self._halves(last)
        word = self._word(loads[0], values, byte)
        value = self._copied(store.value, word, last.var)
        target, place = self._word_place(store.buffer, list(store.indices), values, byte)
        body = tirx.BufferStore(target, value, place)
        iters = [*block.iter_vars[:-1], self._quarter(last, values)]
        return storing_block(iters, block.name_hint, body, None, block.annotations), loads[0].source

    def _copied(self, value: Any, word: Any, last: Any) -> Any:
        """``value`` with a word in the place of a byte, where it only chooses between that and numbers."""
        if isinstance(value, ir.TensorLoad):
            return word
        if isinstance(value, tirx.IntImm):
            number = int(value) & 0xFF
            return tirx.const(int.from_bytes(bytes([number] * BYTES_OF_WORD), "little", signed=True), _WORD)
        if not is_choice(value) or depends_on(value.args[0], last):
            raise Refused("bytes that are computed in the kernel")
        condition, *sides = value.args
        return tirx.if_then_else(condition, *(self._copied(side, word, last) for side in sides))


def _factors_of(block: Any) -> tuple[Any, Any] | None:
    """The loads of unsigned and of signed bytes whose products a block adds up in 32 bits."""
    if block.init is None or not isinstance(block.body, tirx.BufferStore):
        return None
    store = block.body
    total = store.value
    if not isinstance(total, tirx.Add) or str(total.ty.dtype) != _WORD or not is_load_of(total.a, store):
        return None
    product = total.b
    if not isinstance(product, tirx.Mul):
        return None
    loads = [side.value for side in (product.a, product.b) if isinstance(side, tirx.Cast)]
    if len(loads) != 2 or not all(isinstance(load, ir.TensorLoad) for load in loads):
        return None
    by_type = {str(load.ty.dtype): load for load in loads}
    return (by_type[_UNSIGNED], by_type[_SIGNED]) if set(by_type) == {_UNSIGNED, _SIGNED} else None
