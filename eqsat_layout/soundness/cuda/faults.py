"""What is wrong with a kernel: found while it runs, or in its text."""

from __future__ import annotations

from eqsat_layout.errors import EqsatError


class KernelFault(EqsatError):
    """A kernel did what a card may punish. ``kind``: race, barrier, convergence, async, range, alignment,
    unwritten, limit, trap, unseen; ``line``: of the source, 0 where it is not known."""

    def __init__(self, kind: str, line: int, message: str):
        super().__init__(message)
        self.kind = kind
        self.line = line


class SourceError(EqsatError, ValueError):
    """CUDA C++ that the simulator can't take: the message starts with its line and names the word or instruction."""
