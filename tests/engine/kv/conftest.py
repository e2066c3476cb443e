"""Disk tiers that are closed when their test is over."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from engine.kv.disk import Disk
from tests.support.kv import WEIGHTS


@pytest.fixture
def disk_in():
    """Make a disk tier in a folder, open unless told otherwise."""
    made = []

    def make(
        folder: Path, *, identity=WEIGHTS, limit=1 << 20, floor=0, start=1, is_open=True, **how
    ) -> Disk:
        disk = Disk(folder, identity, limit, floor, itertools.count(start), **how)
        made.append(disk)
        assert not is_open or disk.open()
        return disk

    yield make
    for disk in made:
        disk.close()
