"""CPUs through LLVM: candidates, a model of the machine, schedules as TIR, the build."""

from typing import Final

KINDS: Final = ("llvm",)
"""The kinds of targets that this folder makes."""
