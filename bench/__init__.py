"""What is claimed, measured: see README.md. Commands are run from the root: ``python -m bench.ROOM.NAME``."""
