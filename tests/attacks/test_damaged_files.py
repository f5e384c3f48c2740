"""A few damaged files of the kinds that are quickly made; ``bench.soundness.mutated_files`` has all kinds, and many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_is_damaged_is_read_or_refused_and_no_file_is_left(tmp_path: Path) -> None:
    kinds = [word for kind in ("interface", "environment", "database", "artefact") for word in ("--kind", kind)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.soundness.mutated_files", "--cases", "120", *kinds],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('"read"') == 4
    assert not list(tmp_path.iterdir())
