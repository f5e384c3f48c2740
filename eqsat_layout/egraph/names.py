"""Names that rule text passes around without looking inside: formats, format lists, variants, constants, types.

In: formats, flows and types from the host. Out: their names, and the objects back from the names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.graph.constants import Constant
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.maps import Format
from eqsat_layout.tir.flow import Flow

OPAQUE = "-"
"""The format of a value that is no tensor of known shape: it has one form and nothing to convert."""


@dataclass(frozen=True)
class Variant:
    """One way to run an op: operand and result format names. ``flow`` is None where the op runs as it was written.

    ``origin`` says for a person where it comes from: a candidate's name, or the layout that came by a rule.
    """

    key: str
    signature: str
    operands: tuple[str, ...]
    result: str
    flow: Flow | None
    origin: str = ""


class Names:
    """The tables of one saturation. Rows that the rules need to take lists apart are collected in ``new_rows``.

    ``own_elements``: how many the program's own constants have.
    """

    def __init__(self) -> None:
        self.formats: dict[str, Format] = {}
        self.variants: dict[str, Variant] = {}
        self.constants: dict[str, Constant] = {}
        self.own_elements = 0
        self.lists: dict[str, tuple[str, ...]] = {}
        self.types: dict[str, TensorType] = {}
        self.new_rows: list[tuple[str, tuple[Any, ...]]] = []
        self._row_major: dict[TensorType, str] = {}

    def row_major(self, types: Sequence[TensorType | None]) -> str:
        """The name of the formats that Relax means by a value of these types: one tensor, or a tuple."""
        return self.result([self._row_major_of(ty) for ty in types])

    def _row_major_of(self, ty: TensorType | None) -> str:
        if ty is None:
            return OPAQUE
        name = self._row_major.get(ty)
        if name is None:
            name = self._row_major[ty] = self.format(ty.row_major)
        return name

    def format(self, fmt: Format | None) -> str:
        """The name of a format."""
        if fmt is None:
            return OPAQUE
        key = fmt.key
        self.formats.setdefault(key, fmt)
        return key

    def constant(self, constant: Constant) -> str:
        """The name of a constant."""
        if constant.key not in self.constants:
            self.constants[constant.key] = constant
            self.own_elements += constant.elements if constant.is_own else 0
        return constant.key

    def type(self, ty: TensorType) -> str:
        """The name of a type of values: what they are, not where they lie."""
        key = f"{ty.dtype}[{','.join(map(str, ty.shape))}]"
        self.types.setdefault(key, ty.of_value)
        return key

    def operand_list(self, formats: Sequence[str]) -> str:
        """The name of a list of operand formats, one to take apart head first."""
        name = " ".join(formats)
        if name not in self.lists:
            self.lists[name] = tuple(formats)
            for i, head in enumerate(formats):
                self.new_rows.append(("split", (" ".join(formats[i:]), head, " ".join(formats[i + 1 :]))))
        return name

    def result(self, formats: Sequence[str]) -> str:
        """The name of what an op writes: the format itself, or a list for an op with several results."""
        if len(formats) == 1:
            return formats[0]
        name = "[" + " ".join(formats) + "]"
        if name not in self.lists:
            self.lists[name] = tuple(formats)
            self.new_rows.extend(("nth", (name, i, f)) for i, f in enumerate(formats))
        return name

    def variant(
        self, signature: str, operands: Sequence[str], results: Sequence[str], flow: Flow | None, origin: str
    ) -> Variant:
        """The variant with these formats; the first flow that gives them is kept."""
        result = self.result(results)
        identity = f"{signature}({' '.join(operands)})->{result}"
        found = self.variants.get(identity)
        if found is None:
            key = f"{signature}/{len(self.variants)}"
            found = Variant(key, signature, tuple(operands), result, flow, origin)
            self.variants[identity] = self.variants[key] = found
        return found

    def take_new_rows(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The rows collected since the last call."""
        rows, self.new_rows = self.new_rows, []
        return rows
