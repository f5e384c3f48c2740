"""Kernels as object files: what they hold, and what is done meanwhile."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tvm.script import tirx as T
from tvm_ffi.serialization import to_json_graph_str

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.cpu import objects
from eqsat_layout.targets.executable import ObjectFile, shared_library
from eqsat_layout.targets.registry import target


@T.prim_func(private=True, s_tir=True)
def _doubled(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")) -> None:
    for i in range(8):
        with T.sblock("double"):
            at = T.axis.spatial(8, i)
            y[at] = x[at] + x[at]


JOB = objects.KernelJob((("doubled", to_json_graph_str(_doubled)),), to_json_graph_str(target("llvm").tvm), True)


def test_a_kernel_is_written_once() -> None:
    """As the entry of its module it was there a second time."""
    data = objects.make_object(JOB).data
    assert b"__tvm_ffi_doubled" in data
    assert b"__tvm_ffi_main" not in data


def test_a_kernel_needs_no_place_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM ended the process where the disk was full, and a process that was killed left a file there."""
    plain = objects.make_object(JOB).data
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert objects.make_object(JOB).data == plain
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert objects.make_object(JOB).data == plain  # where there are no files in memory
    assert not list(tmp_path.iterdir())


def test_kernels_that_can_not_be_linked_are_an_error_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk was a CalledProcessError."""
    kernel = ObjectFile(("doubled",), b"no machine code")
    with pytest.raises(TargetError, match="can't be linked"):
        shared_library([kernel])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(TargetError, match="can't be linked"):
        shared_library([kernel])


def test_cycles_are_not_looked_for_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled: list[bool] = []
    schedule = objects.schedule_module

    def seen(*given: Any) -> Any:
        enabled.append(gc.isenabled())
        return schedule(*given)

    monkeypatch.setattr(objects, "schedule_module", seen)
    objects.make_object(JOB)
    assert enabled == [False]
    assert gc.isenabled()
