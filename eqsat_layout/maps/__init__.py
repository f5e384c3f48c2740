"""Index maps, formats and memories: the algebra of layouts.

Pure Python and NumPy; imports ``errors`` and ``cached_property`` only, nothing of TVM.
"""

from eqsat_layout.maps.fill import UNDEF, Fill, exact_fill, keep_exact
from eqsat_layout.maps.format import GLOBAL, Format, Formats, Padding
from eqsat_layout.maps.index_map import Digit, Dims, Extent, IndexMap, extent_product, slice_of_digits
from eqsat_layout.maps.layout_name import (
    index_map_from_names,
    layout_separators,
    outer_stride,
    parse_layout_name,
    split_scope,
)
from eqsat_layout.maps.memory import Memory, element_bits

__all__ = [
    "GLOBAL",
    "UNDEF",
    "Digit",
    "Dims",
    "Extent",
    "Fill",
    "Format",
    "Formats",
    "IndexMap",
    "Memory",
    "Padding",
    "element_bits",
    "exact_fill",
    "extent_product",
    "index_map_from_names",
    "keep_exact",
    "layout_separators",
    "outer_stride",
    "parse_layout_name",
    "slice_of_digits",
    "split_scope",
]
