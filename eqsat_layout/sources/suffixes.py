"""What names of files tell.

In: nothing. Out: suffixes; no reader is imported for them.
"""

from __future__ import annotations

from typing import Final

LIBRARIES: Final = frozenset({".so", ".dylib", ".dll"})
"""Of what is compiled already."""
