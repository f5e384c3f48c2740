"""Every attack in ``data`` is refused, with the sentence that stands there, and nothing is run meanwhile.

The files are read in a process of its own, because some of them are written to kill the one that reads them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location("attacks_watch", Path(__file__).with_name("watch.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
watch = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(watch)

KINDS = ("texts", "rules", "graphs")
SECONDS = 300  # far more than it takes: a machine may be busy


def child(kind: str, folder: Path) -> dict[str, dict[str, Any]]:
    """What came of every attack of the kind that the child lived through."""
    command, temporary = [sys.executable, watch.__file__, kind, str(folder)], folder / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    last = next((line["starts"] for line in reversed(lines) if "starts" in line), "the start")
    assert done.returncode == 0, f"died at {last!r}: {done.stderr[-2000:]}"
    assert not list(temporary.iterdir()), "files are left"
    return {line["name"]: line for line in lines if "name" in line}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, Any]]]:
    return {kind: child(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


@pytest.mark.parametrize(("kind", "name"), [(kind, attack["name"]) for kind in KINDS for attack in watch.attacks(kind)])
def test_an_attack_is_refused_and_runs_nothing(
    outcomes: dict[str, dict[str, dict[str, Any]]], kind: str, name: str
) -> None:
    says = next(attack["says"] for attack in watch.attacks(kind) if attack["name"] == name)
    came = outcomes[kind][name]
    assert came["outcome"] == ("RuleError" if kind == "rules" else "FileError"), came
    assert came["message"].startswith("FILE"), came
    assert "\n" not in came["message"], came
    assert says in came["message"]
    assert came["seen"] == []


def test_there_are_many() -> None:
    names = [(kind, attack["name"]) for kind in KINDS for attack in watch.attacks(kind)]
    assert len(set(names)) == len(names) >= 60


def test_the_watch_sees(tmp_path: Path) -> None:
    """Of what the attacks try, all is noticed where it is done."""
    code = (
        "import importlib.util, sys; spec = importlib.util.spec_from_file_location('watch', sys.argv[1]); "
        "w = importlib.util.module_from_spec(spec); spec.loader.exec_module(w); import os, socket, subprocess; "
        "sys.addaudithook(w.hook); w.is_watching = True\n"
        "try: open('/nowhere/file', 'w')\nexcept OSError: pass\n"
        "os.system('true'); subprocess.run(['true']); socket.socket().close(); import wave\n"
        "exec(compile('open', '<ast>', 'eval'))\n"
        "w.is_watching = False; print('\\n'.join(w.watched))"
    )
    done = subprocess.run([sys.executable, "-c", code, watch.__file__], capture_output=True, text=True, check=True)
    for event in ("open '/nowhere/file'", "os.system", "subprocess.Popen", "socket", "import wave", "exec of ['open']"):
        assert event in done.stdout, event
