"""The tensors of one model, and what names mean: signatures, formats, constants.

In: names and the tensors that they stand for. Out: values of ops, tuples and graphs, and their buffers. A value is the
array of several worlds at once, first axis, so that two terms that are equal by chance in one world differ in another.
Equal values are one: a tensor is its number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from eqsat_layout.egraph.names import Names
from eqsat_layout.graph.borders import Part
from eqsat_layout.graph.constants import uniform_number
from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.part_calls import part_calls
from eqsat_layout.maps import IndexMap
from eqsat_layout.soundness.oracle.tir_interpreter import Interpreter, InterpreterError, Masked
from eqsat_layout.soundness.rules.bits import DEVICE_WORLD, canonical, holds, same_bits
from eqsat_layout.soundness.rules.ill_typed import IllTypedError, OtherOperandsError
from eqsat_layout.soundness.rules.runners import RunnableOp
from eqsat_layout.soundness.rules.stored import Array, StoredBytes, lay


class Makes(Protocol):
    """What knows of ops that no model has: see ``made_ops.py``."""

    def type_name(self, values: Values, number: int) -> str: ...

    def type_names(self, values: Values, operands: Sequence[int]) -> str: ...

    def attribute(self, values: Values, key: str, name: str) -> Any: ...

    def is_default(self, values: Values, key: str, name: str) -> bool: ...

    def make(self, values: Values, name: str, settings: str, operands: tuple[int, ...]) -> int: ...

    def op_key(self, values: Values, name: str, operands: Sequence[int]) -> str: ...


@dataclass
class Values:
    """The tensors of one model, and what names mean.

    ``tensors[i]`` is an array, or the tuple of numbers that the value of an op with several results is.
    """

    names: Names
    signatures: Mapping[str, Signature]
    parts: Mapping[str, Part]
    makes: Makes
    interpreters: dict[str, RunnableOp] = field(default_factory=dict)
    tensors: list[Array | tuple[int, ...]] = field(default_factory=list)
    params: dict[str, int] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    refs: list[int] = field(default_factory=list)
    lists: list[tuple[int, ...]] = field(default_factory=list)
    graphs: dict[str, dict[tuple[str, int], tuple[Any, ...]]] = field(default_factory=dict)
    made_by: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    arrivals: set[tuple[int, str]] = field(default_factory=set)
    is_trying: bool = False
    """What comes about now is looked at and is none of the model's tensors: of all that is tried there is no end."""
    _tried: set[int] = field(default_factory=set)
    _tries: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    _makers: dict[int, list[tuple[str, tuple[int, ...]]]] = field(default_factory=dict)
    _known: dict[Any, int] = field(default_factory=dict)
    _of_shape: dict[tuple[Any, ...], list[int]] = field(default_factory=dict)
    _of_type: dict[tuple[tuple[Any, ...], str], list[int]] = field(default_factory=dict)
    _ops: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    _buffers: dict[tuple[str, int], StoredBytes] = field(default_factory=dict)
    _texts: dict[str, frozenset[str]] = field(default_factory=dict)

    def intern(self, value: Array | tuple[int, ...], made_by: tuple[Any, ...]) -> int:
        """The number of a value; ``made_by`` says how it came about, for people."""
        value = value if isinstance(value, tuple) else canonical(value)
        key = value if isinstance(value, tuple) else (value.shape, value.dtype, value.tobytes())
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.tensors)
            self.tensors.append(value)
            self.made_by[number] = made_by
            self._tried.add(number)
        if number in self._tried and not self.is_trying:
            self._tried.remove(number)
            self.made_by[number] = made_by
            if not isinstance(value, tuple):
                self._of_shape.setdefault(value.shape[1:], []).append(number)
                self._of_type.setdefault((value.shape[1:], str(value.dtype)), []).append(number)
        return number

    def all(self) -> list[int]:
        """The tensors, but for those that were only tried."""
        return [number for number in range(len(self.tensors)) if number not in self._tried]

    def of_type(self, shape: tuple[Any, ...], dtype: str) -> Sequence[int]:
        """The tensors of a shape and dtype."""
        return self._of_type.get((shape, dtype), ())

    def of_shape(self, shape: tuple[Any, ...]) -> Sequence[int]:
        """The tensors of a shape."""
        return self._of_shape.get(shape, ())

    def makers(self, number: Any) -> Sequence[tuple[str, tuple[int, ...]]]:
        """Ops and their operands that gave this tensor."""
        return self._makers.get(number, ())

    def may_give(self, name: str, number: int) -> bool:
        """Whether this tensor is of the type that the op gives, if that is known."""
        value, signature = self.tensors[number], self.signatures.get(name)
        if isinstance(value, tuple) or signature is None or name in self.parts or None in signature.results:
            return True
        types = [(t.shape, np.dtype(t.dtype)) for t in signature.results if t is not None]
        return types == [(value.shape[1:], value.dtype)]

    def taken(self, name: str, place: int) -> Sequence[int]:
        """The tensors that an op takes as an operand."""
        part, signature = self.parts.get(name), self.signatures.get(name)
        if part is not None:
            return self.of_shape(taken_shape(part)) if place == 0 else ()
        types = () if signature is None else [t for t in signature.operands if t is not None]
        return self.of_type(types[place].shape, str(np.dtype(types[place].dtype))) if place < len(types) else ()

    def array(self, number: int) -> Array:
        """The elements of a tensor; :class:`IllTypedError` for a tuple."""
        value = self.tensors[number]
        if isinstance(value, tuple):
            raise IllTypedError("a tuple where a tensor is needed")
        return value

    def shape(self, number: int) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.array(number).shape[1:]

    def are_of_two_types(self, a: int, b: int) -> bool:
        """Whether two tensors, neither of which is a tuple, differ in their shapes or dtypes."""
        x, y = self.tensors[a], self.tensors[b]
        return not isinstance(x, tuple) and not isinstance(y, tuple) and (x.shape, x.dtype) != (y.shape, y.dtype)

    def operand_lists(self) -> list[tuple[int, ...]]:
        """Operand lists of all ops so far."""
        return list(dict.fromkeys(operands for _, operands in self._ops))

    # ---- terms ------------------------------------------------------------------------------------------------------

    def op(self, name: str, operands: tuple[int, ...]) -> int:
        """``(Op name operands)``."""
        found = self._ops.get((name, operands))
        if found is None and self.is_trying:
            found = self._tries.get((name, operands))
            if found is None:
                found = self._tries[name, operands] = self._apply(name, operands)
        elif found is None:
            found = self._ops[name, operands] = self._apply(name, operands)
            self._makers.setdefault(found, []).append((name, operands))
        return found

    def _apply(self, name: str, operands: tuple[int, ...]) -> int:
        made_by = ("Op", name, operands)
        part = self.parts.get(name)
        if part is not None:
            if len(operands) != 1 or self.shape(operands[0]) != taken_shape(part):
                raise IllTypedError(f"{name} does not take this operand")
            if not isinstance(part, IndexMap) and part.fill is not None:
                dtype = self.array(operands[0]).dtype
                if not holds(dtype, part.fill):
                    raise IllTypedError(f"{name} does not take {dtype}: {part.fill} is none")
            return self.intern(part.apply_to_each(self.array(operands[0])), made_by)
        signature = self.signatures.get(name)
        if signature is None:
            raise IllTypedError(f"{name!r} is no op")
        arrays = [self.array(x) for x in operands]
        expected = [(t.shape, np.dtype(t.dtype)) for t in signature.operands if t is not None]
        if [(a.shape[1:], a.dtype) for a in arrays] != expected:
            raise OtherOperandsError(signature.name, expected, [(a.shape[1:], a.dtype) for a in arrays])
        try:
            results = run_op(signature, arrays, self.interpreters)
        except InterpreterError as error:  # an index that is out of bounds
            raise IllTypedError(f"{signature.name} has no value: {error}") from error
        if not signature.is_tuple:
            return self.intern(results[0], made_by)
        return self.intern(tuple(self.intern(r, ("Result", i, made_by)) for i, r in enumerate(results)), made_by)

    def get(self, index: int, number: int) -> int:
        """``(Get index tuple)``."""
        fields = self.tensors[number]
        if not isinstance(fields, tuple) or not 0 <= index < len(fields):
            raise IllTypedError("no tuple with such a field")
        return fields[index]

    def node(self, graph: str, kind: str, number: int, operands: tuple[int, ...]) -> Any:
        """Term (``kind`` "node") or operand list ("nodes") ``number`` of a graph over operands."""
        row = self.graphs.get(graph, {}).get((kind, number))
        if row is None:
            raise IllTypedError(f"graph {graph!r} has no term {number}")
        what, *rest = row
        if what == "param":
            return pick(operands, rest[0])
        if what == "const":
            return self.constant(rest[0])
        if what == "end":
            return ()
        if what == "arg":
            return (self.node(graph, "node", rest[0], operands), *self.node(graph, "nodes", rest[1], operands))
        if what == "get":
            return self.get(rest[0], self.node(graph, "node", rest[1], operands))
        return self.op(rest[0], self.node(graph, "nodes", rest[1], operands))

    def graph(self, graph: str, operands: tuple[int, ...]) -> int:
        """The result of a graph over operands."""
        row = self.graphs.get(graph, {}).get(("result", 0))
        if row is None:
            raise IllTypedError(f"there is no graph {graph!r}")
        return int(self.node(graph, "node", row[0], operands))

    def constant(self, name: str) -> int:
        """``(Const name)``."""
        if name not in self.constants:
            raise IllTypedError(f"there is no constant {name!r}")
        return self.constants[name]

    def uniform(self, number: int) -> str | None:
        """The number that all elements are in all worlds, as rules write it."""
        value = self.tensors[number]
        return None if isinstance(value, tuple) else uniform_number(value)

    def window(self, name: str, number: int) -> int:
        """A tensor without the border that pad or crop ``name`` is about."""
        border = self.parts.get(name)
        if border is None or isinstance(border, IndexMap) or self.shape(number) != border.wide_shape:
            raise IllTypedError(f"{name} has no window in this")
        cut = (slice(None), *(slice(lo, n - hi) for (lo, hi), n in zip(border.widths, self.shape(number), strict=True)))
        return self.intern(np.ascontiguousarray(self.array(number)[cut]), ("window", name, number))

    # ---- storage ----------------------------------------------------------------------------------------------------

    def formats(self, name: str) -> tuple[str, ...]:
        """The formats in a list of formats; a format alone is one."""
        return self.names.lists.get(name, (name,) if name in self.names.formats else ())

    def fits(self, name: str, number: int) -> bool:
        """Whether a format (or list of them) is one for this tensor (or tuple)."""
        value = self.tensors[number]
        if isinstance(value, tuple):
            formats = self.formats(name) if name[:1] == "[" else ()  # without: formats of operands
            return len(formats) == len(value) and all(map(self.fits, formats, value))
        fmt = self.names.formats.get(name)
        return fmt is not None and fmt.shape == value.shape[1:]

    def fits_all(self, name: str, operands: tuple[int, ...]) -> bool:
        """The same for a list of formats and an operand list."""
        formats = tuple(name.split(" ")) if name else ()
        return len(formats) == len(operands) and all(map(self.fits, formats, operands))

    def lay(self, name: str, number: int) -> StoredBytes:
        """A tensor in a format."""
        found = self._buffers.get((name, number))
        if found is None:
            if not self.fits(name, number) or name not in self.names.formats:
                raise IllTypedError(f"{name} is no format of this")
            found = self._buffers[name, number] = lay(self.names.formats[name], self.array(number))
        return found

    def computes(self, variant: str, operands: tuple[int, ...], number: int, result: str) -> bool:
        """Whether a variant makes this tensor of these operands, and writes it in format ``result``."""
        known = self.names.variants.get(variant)
        if known is None or known.result != result:
            return False
        return self.equal(self.op(known.signature, operands), number)

    def reads(self, variant: str, formats: str) -> bool:
        """Whether a variant reads its operands in this list of formats."""
        known = self.names.variants.get(variant)
        return known is not None and " ".join(known.operands) == formats

    def arrives(self, number: int, name: str) -> bool:
        """Whether a tensor comes from outside in this format."""
        return (number, name) in self.arrivals

    def equal(self, a: Any, b: Any) -> bool:
        """Whether two tensors, operand lists, buffers or names are equal."""
        if isinstance(a, tuple) and isinstance(b, tuple):
            return len(a) == len(b) and all(map(self.equal, a, b))
        if isinstance(a, StoredBytes) and isinstance(b, StoredBytes):
            return a.serves(b) and b.serves(a)
        if a == b or isinstance(a, str) or isinstance(b, str):
            return bool(a == b)
        x, y = self.tensors[a], self.tensors[b]
        if isinstance(x, tuple) or isinstance(y, tuple):
            return isinstance(x, tuple) and isinstance(y, tuple) and self.equal(x, y)
        return same_bits(x, y)

    def is_named(self, name: str, text: str) -> bool:
        """``(is name text)``."""
        known = self._texts.get(name)
        if known is None:
            known = self._texts[name] = self._texts_of(name)
        return text in known

    def _texts_of(self, name: str) -> frozenset[str]:
        """What ``name`` is called in rules."""
        part, signature = self.parts.get(name), self.signatures.get(name)
        if part is not None:
            kind = "view" if isinstance(part, IndexMap) else "crop" if part.fill is None else "pad"
            return frozenset([kind, *(call.name for call in part_calls(part))])
        if signature is None:
            return frozenset()
        return frozenset([signature.rule_name, *(["frozen"] if signature.frozen else [])])


def run_op(signature: Signature, operands: Sequence[Array], interpreters: dict[str, RunnableOp]) -> list[Array]:
    """An op on operands with worlds in front; one array per result. ``interpreters`` keeps what is worked out once."""
    interpreter = interpreters.get(signature.key)
    if interpreter is None:
        interpreter = interpreters[signature.key] = Interpreter(signature.func, DEVICE_WORLD)
    return [result.values for result in interpreter.run([Masked.of(a) for a in operands])]


def taken_shape(part: Part) -> tuple[Any, ...]:
    """The shape that a view, pad or crop takes."""
    if isinstance(part, IndexMap):
        return part.shape
    return part.wide_shape if part.fill is None else part.shape


def pick(operands: Sequence[Any], index: int) -> Any:
    """Operand ``index`` of a list."""
    if not 0 <= index < len(operands):
        raise IllTypedError(f"no operand {index}")
    return operands[index]
