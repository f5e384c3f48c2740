"""The tensors of a saturated e-graph, by number.

In: a saturation. Out: numbers for e-classes, with their types, their bindings and which of them are constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat_layout.egraph.saturated import Saturated
from eqsat_layout.extract.conversions import Spec
from eqsat_layout.graph.constants import Constant
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import GLOBAL


class Tensors:
    """Numbers in the order of the program. ``first_node`` is a tensor's earliest binding, -1 if rules made it.

    ``handles``: the e-classes by number.
    """

    def __init__(self, saturated: Saturated, signatures: Mapping[str, Signature]):
        self.saturated, self._signatures = saturated, signatures
        self._number: dict[Any, int] = {}
        self.handles: list[Any] = []
        self.types: list[TensorType | None] = []
        self.first_node: list[int] = []
        self.of_node = tuple(self.number(handle, i) for i, handle in enumerate(saturated.handle_of_node))
        self.constants: dict[int, Constant] = {}
        for name, handle in sorted(saturated.tables.rows("Const"), key=lambda row: (len(row[0]), row[0])):
            self.constants.setdefault(self.number(handle), saturated.names.constants[name])

    def number(self, handle: Any, node: int = -1) -> int:
        """The tensor of an e-class."""
        number = self._number.get(handle)
        if number is None:
            number = self._number[handle] = len(self.types)
            self.handles.append(handle)
            self.types.append(self.saturated.types.get(handle))
            self.first_node.append(node)
        return number

    @property
    def goals(self) -> list[Spec]:
        """What the outside needs, as Relax has it."""
        return [(self.of_node[i], self.row_major_name(i)) for i, _ in self.saturated.graph.goals]

    def is_held(self, spec: Spec) -> bool:
        """The memory of the format holds such a tensor: a rule may want anything anywhere."""
        ty, fmt = self.types[spec[0]], self.saturated.names.formats.get(spec[1])
        if ty is None or fmt is None or fmt.scope == GLOBAL:
            return True
        memory = self.saturated.memories.get(fmt.scope)
        return memory is not None and memory.why_not(fmt, ty.dtype) is None

    def row_major_name(self, node: int) -> str:
        """The format that Relax means by the value of a node."""
        return self.saturated.names.row_major(self.saturated.graph.value_types(node, self._signatures))

    def param_node(self, tensor: int) -> int:
        """The parameter among the bindings of a class; one that is given is always there."""
        nodes = self.saturated.graph.nodes
        first = self.first_node[tensor]
        if nodes[first].kind == "param":
            return first
        return next(i for i, t in enumerate(self.of_node) if t == tensor and nodes[i].kind == "param")
