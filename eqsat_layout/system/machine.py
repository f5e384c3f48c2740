"""What of this machine and of the environment decides what is compiled for it, read without TVM."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path
from typing import Final

from eqsat_layout.system.folder import number_in_environment

CORES: Final = len(os.sched_getaffinity(0))
"""That this process may use. Taken at import: TVM's first parallel loop narrows the affinity of its thread."""

_MANY: Final = 4096
"""More threads than that are taken for a mistake."""

_CHANGING: Final = (
    "cpu MHz",
    "bogomips",
    "BogoMIPS",
    "processor",
    "apicid",
    "initial apicid",
    "core id",
    "physical id",
)
"""Fields of ``/proc/cpuinfo`` that differ between cores, or from one moment to the next."""


def threads() -> int:
    """That programs run with: as ``TVM_NUM_THREADS`` says, else one for each core that this process may use."""
    asked = number_in_environment("TVM_NUM_THREADS", 0)
    return asked if 0 < asked <= _MANY else CORES


def machine_text() -> str:
    """Equal texts stand for the same default target; it holds more than that depends on."""
    own = {name: value for name, value in os.environ.items() if name.startswith(("TVM_", "EQSAT_LAYOUT_"))}
    return f"{_hardware()} {CORES} {sorted(own.items())}"


@cache
def _hardware() -> str:
    lines = (line.partition(":") for line in _text(Path("/proc/cpuinfo")).partition("\n\n")[0].splitlines())
    fields = [(name.strip(), value.strip()) for name, _, value in lines if name.strip() not in _CHANGING]
    caches = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    sizes = [_text(index / name).strip() for index in caches for name in ("level", "type", "size")]
    return f"{platform.uname()._replace(node='')} {fields} {sizes}"


def _text(path: Path) -> str:
    """The text of a file of the system, where there is one."""
    try:
        return path.read_text()
    except OSError:
        return ""
