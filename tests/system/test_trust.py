"""What another user could have put there is neither read nor run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eqsat_layout.system.store import ArtefactStore
from eqsat_layout.system.trust import distrust


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtefactStore:
    """One that holds an artefact."""
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path / "cache"))
    made = ArtefactStore.usual()
    made.put("a", [b"program"])
    assert made.get("a") == b"program"
    return made


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_nothing_is_taken_from_a_folder_that_others_may_write_to(store: ArtefactStore, levels: int) -> None:
    """A library that somebody put there was run."""
    folder = [store.folder, *store.folder.parents][levels]
    folder.chmod(0o777)
    assert not ArtefactStore.usual().limit
    assert str(folder) in distrust(store.folder)
    folder.chmod(0o755)
    assert ArtefactStore.usual().get("a") == b"program"


def test_in_a_folder_like_tmp_each_has_his_own(store: ArtefactStore) -> None:
    store.folder.parent.chmod(0o1777)
    assert not distrust(store.folder)
    store.folder.chmod(0o1777)
    assert distrust(store.folder)


def test_its_folders_are_the_user_s_whatever_the_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path / "cache"))
    before = os.umask(0)
    try:
        ArtefactStore.usual().put("a", [b"program"])
    finally:
        os.umask(before)
    assert ArtefactStore.usual().get("a") == b"program"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_taken(store: ArtefactStore) -> None:
    path = store._path("a")
    os.chown(path, 12345, 12345)
    assert store.get("a") is None
    os.chown(store.folder, 12345, 12345)
    assert "another user" in distrust(store.folder)


def test_a_link_is_followed(store: ArtefactStore, tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (tmp_path / "link").symlink_to(open_to_all)
    assert distrust(tmp_path / "link" / "built.v1")
