"""One file or Redis: the contracts that belong together."""

from __future__ import annotations

from server.store import store_for


async def test_without_redis_there_is_one_file(tmp_path, background):
    store = store_for(tmp_path, None, background, 10.0)
    store.start()
    await store.log.probe()
    assert not store.log.is_shared and not store.leases.is_shared
    assert store.broker.is_up and store.why_not_durable() == ""
    await store.close()
    assert [path.name for path in tmp_path.glob("*.sqlite3")] == ["consilium.sqlite3"]


async def test_with_redis_nothing_is_in_the_folder(tmp_path, background, redis):
    store = store_for(tmp_path, redis.url, background, 10.0)
    store.start()
    await store.log.probe()
    assert store.log.is_shared and store.leases.is_shared
    await store.close()
    assert list(tmp_path.glob("*.sqlite3")) == []
