"""What names of files tell.

In: nothing. Out: suffixes; no reader is imported for them.
"""

from __future__ import annotations

from typing import Final

LIBRARIES: Final = frozenset({".so", ".dylib", ".dll"})
"""Of what is compiled already, for this machine's processor."""

PROGRAMS: Final = frozenset({".program"})
"""Of what is compiled for a device: data."""

COMPILED: Final = LIBRARIES | PROGRAMS
