"""What a plan is said in: the layout rewrites that it carries out, statistics of the search, refused layouts.

In: plain data from planning. Out: frozen records; nothing of TVM or of the e-graph is inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat_layout.maps import Extent, IndexMap


@dataclass(frozen=True)
class Transform:
    """A layout rewrite of one tensor that the program carries out when it runs.

    ``shape`` is the logical shape, ``bytes`` what the rewrite reads and writes in all, ``before`` and ``after`` are the
    names of the layouts.
    """

    function: str
    tensor: str
    index_map: IndexMap
    shape: tuple[Extent, ...]
    dtype: str
    bytes: int
    before: str = ""
    after: str = ""

    @property
    def layouts(self) -> str:
        """``NCHW → NHWC``; the index map where the layouts have no names."""
        return f"{self.before} → {self.after}" if self.before else str(self.index_map)


@dataclass(frozen=True)
class Stats:
    """How big the search was and where the time went; ``seconds`` is in the order of the stages.

    ``constant_bytes`` is what the constants of the plan take, once per layout that they are used in; folding added what
    is more than ``input_constant_bytes``.
    """

    ops: int
    e_nodes: int
    e_classes: int
    rounds: int
    seconds: Mapping[str, float]
    constant_bytes: int = 0
    input_constant_bytes: int = 0


@dataclass(frozen=True)
class Refusal:
    """A layout that did not go through an op, or an algorithm that it was not offered.

    ``op`` is its whole name; of a step of an algorithm, with the algorithm in front.

    ``side`` is the operand or result that the layout was asked for, ``layout`` its short name and ``index_map`` itself;
    of an algorithm, ``side`` is empty, ``layout`` its name, and there is no index map.
    """

    op: str
    side: str
    index_map: IndexMap | None
    reason: str
    layout: str = ""

    def __str__(self) -> str:
        if self.index_map is None:
            return f"{self.op}: {self.layout}: {self.reason}"
        return f"{self.op}: {self.index_map} of {self.side}: {self.reason}"


@dataclass(frozen=True)
class KernelRecord:
    """What the build makes one kernel of: the function's ``name`` in the program, the ``ops`` that it carries out and
    the ``tensors`` that they make, as a person knows them, in order.

    ``cost`` is what the plan counts for these ops, in modelled seconds; ``saved`` is what is less of it because the
    target makes one kernel of several of those that the plan counts.
    """

    function: str
    name: str
    ops: tuple[str, ...]
    tensors: tuple[str, ...]
    cost: float
    saved: float
