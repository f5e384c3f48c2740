"""Interrupts that come out of TVM as they went in.

In: nothing; importing it is enough. Out: nothing. Where TVM calls back into Python it makes a ``RuntimeError`` of every
exception that it has no name for, and that of an interrupt was taken for a kernel that can't be lowered: Ctrl-C was
lost, and what was being made was made without its schedule.
"""

from __future__ import annotations

from tvm_ffi import register_error


class _Exit(SystemExit):
    """Of TVM's text."""

    def __init__(self, said: str) -> None:
        super().__init__(int(said) if said.isdecimal() else None if said in ("", "None") else said)


for _interrupt in (KeyboardInterrupt, SystemExit, TimeoutError):  # what handlers of signals raise
    register_error(_interrupt)
register_error("SystemExit", _Exit)
