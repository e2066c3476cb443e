"""What has to be true of Redis is asked, not assumed."""

from __future__ import annotations

import pytest

from server.config import BadSettings
from server.redis_link import RedisLink, key
from tests.support.redis_server import RedisServer


def test_the_keys_of_a_room_lie_in_one_slot_of_a_cluster():
    assert key("ward-7", "head") == "consilium:{ward-7}:head"


async def test_R6_who_only_listens_has_no_read_timeout(redis):
    link = RedisLink(redis.url)
    async with link.subscriber() as listening:
        assert listening.connection_pool.connection_kwargs["socket_timeout"] is None
    await link.close()


async def test_aof_with_fsync_always_is_durable(redis):
    link = RedisLink(redis.url)
    await link.check()
    assert link.is_durable and link.durability == ""
    await link.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--appendonly", "yes", "--appendfsync", "everysec"), "AOF on, appendfsync everysec"),
        (("--appendonly", "no", "--appendfsync", "always"), "AOF off, appendfsync always"),
    ],
)
async def test_anything_less_is_not_and_says_what(tmp_path, options, said):
    running = RedisServer(tmp_path, *options).start()
    link = RedisLink(running.url)
    await link.check()
    assert not link.is_durable and said in link.durability
    await link.close()
    running.stop()


async def test_where_config_is_forbidden_nothing_is_proven(tmp_path):
    running = RedisServer(
        tmp_path, "--appendonly", "yes", "--appendfsync", "always", "--rename-command", "CONFIG", ""
    ).start()
    link = RedisLink(running.url)
    await link.check()
    assert "appendfsync unknown" in link.durability
    await link.close()
    running.stop()


async def test_no_redis_is_one_sentence():
    link = RedisLink("redis://127.0.0.1:1")
    with pytest.raises(BadSettings, match="Redis does not answer"):
        await link.check()
    await link.close()
