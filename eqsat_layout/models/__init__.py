"""Reference networks as Relax modules, for tests, benchmarks and examples.

Imports no other room.
"""

from eqsat_layout.models.resnet import resnet50

__all__ = ["resnet50"]
