"""Work that outlives connections, and its end."""

from __future__ import annotations

import asyncio

import structlog

from server.background import Background


async def test_a_fault_ends_one_work_and_is_logged():
    scope = Background()

    async def fail() -> None:
        raise ValueError("ours")

    with structlog.testing.capture_logs() as logs:
        scope.spawn(fail(), "bad")
        good = scope.spawn(asyncio.sleep(0.01), "good")
        await good
        await asyncio.sleep(0)
    assert [each["work"] for each in logs] == ["bad"] and len(scope) == 0


async def test_close_cancels_what_is_left_and_waits_for_its_clean_up():
    scope, cleaned = Background(), []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(1)

    scope.spawn(work(), "work")
    await asyncio.sleep(0)
    await scope.close()
    assert cleaned == [1] and len(scope) == 0


async def test_a_task_that_takes_a_cancellation_for_its_own_is_ended_all_the_same():
    scope, began = Background(), asyncio.Event()

    async def swallow_one() -> None:
        try:
            began.set()
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(100)

    task = scope.spawn(swallow_one(), "swallow")
    await began.wait()
    async with asyncio.timeout(5):
        await scope.close()
    assert task.cancelled()
