"""The store: by content, whole or not there, and never outside its folder."""

from __future__ import annotations

import pytest

from server.assets import Assets, Disk

HASH = "ab" * 32


@pytest.fixture
def store(tmp_path):
    disk = Disk()
    yield Assets(tmp_path, disk)
    disk.close()


@pytest.mark.parametrize("asset", ["../x", "a/b", "", ".", "..", "a\0", "x" * 65, "x\n"])
def test_no_path_is_made_of_what_is_no_id(store, asset):
    for make in (store.upload, store.work_folder, lambda a: store.level(a, 16)):
        with pytest.raises(ValueError):
            make(asset)


@pytest.mark.parametrize("digest", ["../../x", "", "AB" * 32, "ab" * 31, "ab" * 32 + "\n"])
def test_no_path_is_made_of_what_is_no_hash(store, digest):
    with pytest.raises(ValueError):
        store.original(digest)


async def test_committed_bytes_lie_under_their_hash(store, tmp_path):
    part = tmp_path / "part"
    for _ in range(2):
        part.write_bytes(b"content")
        kept = await store.keep(part, HASH)
        assert kept == store.original(HASH) and kept.read_bytes() == b"content"
        assert not part.exists()


async def test_a_level_outlives_what_perception_tidies_away(store, tmp_path):
    made = tmp_path / "made.webp"
    for content in (b"first", b"again"):
        made.write_bytes(content)
        await store.keep_level("a1", 64, str(made))
        made.unlink()
        assert store.level("a1", 64).read_bytes() == content
