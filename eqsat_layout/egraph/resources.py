"""Files that come with the package. Nothing comes in; out goes where the rule files lie."""

from __future__ import annotations

from pathlib import Path

from eqsat_layout.errors import EqsatError


def rules_dir() -> Path:
    """The folder of the shipped ``*.egg`` files: inside an installed package, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "rules", package.parent / "rules"):
        if any(folder.glob("*.egg")):
            return folder
    raise EqsatError(f"the rule files are missing: neither {package / 'rules'} nor {package.parent / 'rules'} has any")
