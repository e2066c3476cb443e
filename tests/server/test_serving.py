"""The process: what it refuses to start with, in one sentence."""

from __future__ import annotations

import pytest

from server.config import Settings
from server.serving import bound_socket, serve


def test_no_redis_where_one_was_asked_for_ends_the_process_with_one_sentence(tmp_path):
    settings = Settings(port=0, folder=tmp_path, redis="redis://127.0.0.1:1")
    with pytest.raises(SystemExit, match="Redis does not answer"):
        serve(settings)


def test_a_redis_url_that_is_none_is_one_sentence(tmp_path):
    with pytest.raises(SystemExit, match="--redis"):
        serve(Settings(port=0, folder=tmp_path, redis="http://example.org"))


def test_a_port_that_is_taken_ends_the_process_with_one_sentence(tmp_path):
    with bound_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=f"cannot listen on 127.0.0.1:{port}"):
            serve(Settings(port=port, folder=tmp_path))
