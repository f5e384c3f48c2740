"""All families of schedules of single stages, the best first.

In: nothing. Out: the families in the order in which they are tried. To add one: a file beside this, and a line here.
"""

from __future__ import annotations

from typing import Final

from eqsat_layout.targets.cpu.single.families.elementwise import ELEMENTWISE
from eqsat_layout.targets.cpu.single.families.fallback import FALLBACK
from eqsat_layout.targets.cpu.single.families.family import Family
from eqsat_layout.targets.cpu.single.families.lane_reduction import LANES, SIDE_BY_SIDE_RESULTS
from eqsat_layout.targets.cpu.single.families.several_results import SEVERAL_RESULTS, SEVERAL_SIDE_BY_SIDE
from eqsat_layout.targets.cpu.single.families.tiled_reduction import (
    PIECES,
    PIECES_AND_EPILOGUE,
    TILES,
    TILES_AND_EPILOGUE,
    TILES_AND_RELAID_EPILOGUE,
)

FAMILIES: Final[tuple[Family, ...]] = (
    PIECES_AND_EPILOGUE,
    TILES_AND_EPILOGUE,
    TILES_AND_RELAID_EPILOGUE,
    PIECES,
    TILES,
    LANES,
    SIDE_BY_SIDE_RESULTS,
    SEVERAL_SIDE_BY_SIDE,
    SEVERAL_RESULTS,
    ELEMENTWISE,
    FALLBACK,
)
