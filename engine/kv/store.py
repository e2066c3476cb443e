"""Sessions' KV away from the live contexts: in RAM, and behind it on disk."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from engine.kv.blocks import BLOCK, Memory, Record, bytes_from, cut, cut_states, paste
from engine.kv.context import Context, Kept
from engine.kv.cost import Costs
from engine.kv.disk import SPARE_BYTES, Disk
from engine.kv.files import Save
from engine.kv.keys import Identity
from engine.kv.ram import Ram
from engine.kv.spool import Spool, is_named

Answers = Mapping[str, Sequence[int]]
# Saves that wait for the disk may take this part of the RAM tier; behind that they are left out.
STAGED_SHARE = 2


class Store:
    """What the loop asks; its methods never wait for a disk, and only the loop calls them.

    `ram_bytes` 0 turns it off. Without a folder there is no disk; what goes there passes the RAM.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        ram_bytes: int,
        folder: Path | None = None,
        disk_bytes: int = 0,
        floor_bytes: int = 0,
    ) -> None:
        self._numbers = itertools.count(1)
        self._ram = Ram(ram_bytes)
        self._disk: Disk | None = None
        self._spool: Spool | None = None
        self.costs = Costs()
        self._counters: Counter[str] = Counter()
        self._copy_seconds = 0.0
        if folder is not None:
            assert identity.model, "what is written has to be known again"
            self._disk = Disk(folder, identity, disk_bytes, floor_bytes, self._numbers)
            self._spool = Spool(self._ram, self._disk, self.costs)

    def start(self) -> None:
        """Begin to read and write."""
        if self._spool is not None:
            self._spool.start()

    def stop(self) -> None:
        """Finish what waits to be written."""
        if self._spool is not None:
            self._spool.stop()

    # -- away from the live context -------------------------------------------------------------

    def keep(self, key: str, context: Context, answers: Answers) -> None:
        """Write behind what a turn added, for an engine to come; the context stays live."""
        # A copy from before the turn would only be mistaken for what the session knows.
        self._ram.drop(key)
        if self._spool is None or self._disk is None or not context.length:
            return
        follows, first, stored = self._stored(key, context)
        memory = Memory.of(context, answers)
        known = frozenset(memory.states)
        if follows is not None and context.kept == Kept(context.length, follows, known):
            return
        size = bytes_from(context, first, stored) + memory.size_bytes
        room = self._ram.limit_bytes // STAGED_SHARE - self._spool.staged_bytes
        if self._disk.is_off or size > min(room, self._disk.limit_bytes):
            self._counters["kv_saves_skipped"] += 1
            return
        if not self._ram.reserve(size):
            self._counters["kv_saves_skipped"] += 1
            return
        number = next(self._numbers)
        blocks, states = cut(context, first), cut_states(context, stored)
        save = Save(key, number, follows, first, blocks, memory, states)
        context.kept = Kept(context.length, number, known)
        self._spool.save(save)

    def demote(self, key: str, context: Context, answers: Answers) -> bool:
        """Copy a context that is about to lose its memory to RAM; False when there is no room."""
        if not self._ram.limit_bytes or not context.length:
            return False
        memory = Memory.of(context, answers)
        if not self._ram.reserve(bytes_from(context, 0) + memory.size_bytes):
            self._counters["kv_demotions_without_room"] += 1
            return False
        states = tuple(cut_states(context).values())
        self._ram.put(key, Record(memory, cut(context), context.kept, states=states))
        return True

    def hold(self, key: str, context: Context, answers: Answers) -> bool:
        """Do as `demote` for a turn that goes on later, which owes an `unwant` if this is True."""
        self._ram.pin(key)
        if self.demote(key, context, answers):
            return True
        self._ram.unpin(key)
        return False

    def forget(self, key: str) -> None:
        """Drop what is in RAM of a session."""
        self._ram.drop(key)

    def _stored(self, key: str, context: Context) -> tuple[int | None, int, frozenset[int]]:
        """Return the save that the next one may follow, the first block that it adds, and the
        lengths whose states it need not hold.
        """
        assert self._spool is not None and self._disk is not None, "asked only with a disk"
        kept = context.kept
        if kept is None or self._spool.latest(key) != kept.number:
            return None, 0, frozenset()
        if self._disk.size_of(key) > 2 * context.shape.bytes_of(context.length) + SPARE_BYTES:
            return None, 0, frozenset()
        return kept.number, kept.tokens // BLOCK, kept.states

    # -- and back -------------------------------------------------------------------------------

    def want(self, key: str) -> Future[None] | None:
        """Bring a session near for a turn that waits; None when there is nothing to wait for.

        From now on it stays in RAM until `unwant`, which the turn owes at its start or its end.
        """
        self._ram.pin(key)
        if self._spool is None or key in self._ram:
            return None
        return self._spool.fetch(key)

    def unwant(self, key: str) -> None:
        """Let the session be evicted again."""
        self._ram.unpin(key)

    def peek(self, key: str) -> Memory | None:
        """Return what is known of a session in RAM."""
        record = self._ram.get(key)
        return record.memory if record is not None else None

    def restore(self, key: str, context: Context, tokens: int) -> None:
        """Move the first `tokens` of a session from RAM into its context, which has room.

        With recurrent layers as many of them as a kept state is true of.
        """
        record = self._ram.get(key)
        if record is None:
            return
        began = time.monotonic()
        paste(record, context, tokens)
        if record.kept is not None:
            context.kept = record.kept.upto(context.length)
        self._ram.drop(key)
        self._copy_seconds += time.monotonic() - began
        self._counters[f"kv_{record.tier}_hits"] += 1
        self._counters[f"kv_{record.tier}_tokens"] += context.length

    def prefetch(self, session: str, live: frozenset[str]) -> None:
        """Bring all sessions of a name to RAM, but for those that are live."""
        if self._spool is not None:
            self._spool.prefetch(session, live)

    def wipe(self, session: str) -> Future[None]:
        """Forget all sessions of a name; done when nothing of them is left on disk."""
        gone: Future[None] = Future()
        if self._spool is not None:
            gone = self._spool.wipe(session)
        else:
            gone.set_result(None)
        for key in self._ram.keys():
            if is_named(key, session):
                self._ram.drop(key)
        return gone

    # -- numbers --------------------------------------------------------------------------------

    def gauges(self) -> dict[str, float]:
        """Return what the tiers hold now; may be asked from any thread."""
        gauges = {
            "kv_ram_bytes": float(self._ram.used_bytes),
            "kv_ram_budget_bytes": float(self._ram.limit_bytes),
            "kv_ram_sessions": float(len(self._ram)),
        }
        if self._disk is not None and self._spool is not None:
            gauges |= {
                "kv_disk_bytes": float(self._disk.used_bytes),
                "kv_disk_budget_bytes": float(self._disk.limit_bytes),
                "kv_disk_sessions": float(len(self._disk)),
                "kv_disk_off": float(self._disk.is_off),
                "kv_staged_bytes": float(self._spool.staged_bytes),
            }
        return gauges

    def counters(self) -> dict[str, float]:
        """Return what happened since the start; may be asked from any thread."""
        counted: Counter[str] = Counter(dict(self._counters))
        counters = {"kv_ram_evictions": float(self._ram.evictions)}
        counters["kv_copy_seconds"] = self._copy_seconds
        if self._disk is not None and self._spool is not None:
            counted.update(dict(self._disk.counters))
            counted.update(dict(self._spool.counters))
            counters["kv_read_seconds"] = self._spool.read_seconds
        return {**{name: float(n) for name, n in counted.items()}, **counters}

    def check_integrity(self) -> None:
        """Raise `AssertionError` unless, after `stop`, every byte has its owner."""
        self._ram.check_integrity()
        if self._spool is not None:
            assert self._spool.staged_bytes == 0, "a save was never let go"
