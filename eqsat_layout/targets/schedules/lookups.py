"""What a schedule over one PrimFunc says of its blocks and loops.

In: a ``Schedule`` and references to blocks and loops. Out: others, or the nodes of the IR. The same as the methods of
these names, without the check of argument types that TVM puts around each: it takes longer than most answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from tvm import s_tir

_Lookup = Callable[[Any, Any], Any]

get: Final[_Lookup] = inspect.unwrap(s_tir.Schedule.get)
"""The node of a block or loop."""

get_loops: Final[_Lookup] = inspect.unwrap(s_tir.Schedule.get_loops)
"""The loops around a block, outermost first."""

get_consumers: Final[_Lookup] = inspect.unwrap(s_tir.Schedule.get_consumers)
"""The blocks that read what a block writes."""

get_producers: Final[_Lookup] = inspect.unwrap(s_tir.Schedule.get_producers)
"""The blocks that write what a block reads."""

get_child_blocks: Final[_Lookup] = inspect.unwrap(s_tir.Schedule.get_child_blocks)
"""The blocks inside of a block or loop."""

get_sblock: Final[_Lookup] = inspect.unwrap(s_tir.Schedule.get_sblock)
"""The block of a name."""
