"""What torch takes for granted of the sizes of an exported program while it writes its ops in others.

In: a program. Out: what its definitions ask of sizes, with the answers that hold for the example that the program was
exported with. They go on as if these held for all sizes; torch only logs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def assumptions(program: Any) -> Iterator[list[str]]:
    """A list of what is taken for granted until the block ends."""
    values = [node.meta.get("val") for node in program.graph.nodes]
    modes = [mode for value in values if (mode := getattr(value, "fake_mode", None)) is not None]
    sizes = modes[0].shape_env if modes else None
    found: list[str] = []
    if sizes is None:
        yield found
        return
    check = sizes._check_frozen

    def noted(asked: Any, answer: Any) -> None:
        if sizes.frozen:
            found.append(f"{asked} is {answer}")
        check(asked, answer)

    sizes._check_frozen = noted
    try:
        yield found
    finally:
        del sizes._check_frozen
