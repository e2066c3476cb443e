"""What the server is told: one frozen object, from the environment and the command line."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from protocol.base import HELLO_TIMEOUT_S

MIN_SECRET_BYTES = 32
_PREFIX = "CONSILIUM_"


class BadSettings(ValueError):
    """Settings that the server refuses to start with; the message says what to change."""


Dtype = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set. Times in seconds, sizes in bytes, as the names say.

    `secret` signs room tokens; without one the server is open, and then only on loopback.
    `port` 0 takes a free one, written to `port_file` when that is given. `redis` is the URL of
    the Redis that all processes of all machines share; without one there is one process.
    """

    host: str = "127.0.0.1"
    port: int = 8760
    port_file: Path | None = None
    folder: Path = field(default_factory=lambda: Path("var"))
    secret: str | None = None
    allowed_origins: tuple[str, ...] = ()
    workers: int = 1
    redis: str | None = None
    lease_s: float = 10.0
    web_client: Path = Path(__file__).resolve().parent.parent / "web-client" / "dist"

    model: str = "smollm2-135m"
    speech_model: str = "whisper-tiny-en"
    models_cache: Path | None = None
    engine_threads: int = 2
    engine_dtype: Dtype = "bf16"
    engine_device: str = "cpu"
    # Bits of an answer that depend on nothing beside it; slower in large batches.
    engine_deterministic: bool = False
    engine_wait_s: float = 30.0
    # What the model has read of conversations, so that it need not read it again: live, in RAM
    # beside it, and in files (0: none) of `kv_folder`, by default `kv` in the data folder.
    kv_budget_bytes: int = 2 * 1024 * 1024 * 1024
    kv_ram_bytes: int = 1024 * 1024 * 1024
    kv_disk_bytes: int = 4 * 1024 * 1024 * 1024
    kv_disk_floor_bytes: int = 1024 * 1024 * 1024
    kv_folder: Path | None = None
    # Whether the engine reads what a room shows before anybody asks; and a file of questions, one
    # a line, that it answers ahead.
    look_ahead: bool = True
    frequent_questions_file: Path | None = None

    hello_timeout_s: float = HELLO_TIMEOUT_S
    heartbeat_s: float = 5.0
    send_deadline_s: float = 15.0
    outbox_bytes: int = 1024 * 1024
    resume_events: int = 5_000
    snapshot_events: int = 500
    idle_room_s: float = 60.0
    blip_s: float = 2.0

    messages_per_s: float = 200.0
    messages_burst: int = 600
    presence_per_s: float = 60.0
    max_members: int = 500
    max_connections: int = 2_000
    max_rooms: int = 1_000
    room_bytes: int = 16 * 1024 * 1024

    max_asset_bytes: int = 256 * 1024 * 1024
    max_streams: int = 8
    credit_bytes: int = 1024 * 1024
    upload_resume_s: float = 600.0
    room_uploads: int = 64
    room_assets: int = 2_000

    ticket_s: float = 3600.0
    max_new_tokens: int = 256
    room_turns: int = 8
    perception_wait_s: float = 20.0
    gather_s: float = 0.04
    drain_s: float = 10.0

    def __post_init__(self) -> None:
        if self.secret is not None and len(self.secret.encode()) < MIN_SECRET_BYTES:
            raise BadSettings(f"the secret needs {MIN_SECRET_BYTES} bytes or more")
        if self.engine_dtype not in get_args(Dtype):
            raise BadSettings(f"engine_dtype is bf16, fp16 or fp32, not {self.engine_dtype!r}")
        if self.kv_budget_bytes < 1 or min(self.kv_ram_bytes, self.kv_disk_bytes) < 0:
            raise BadSettings("kv_budget_bytes is above 0; kv_ram_bytes and kv_disk_bytes may be 0")
        if self.workers < 1:
            raise BadSettings("at least one worker is needed")
        if self.workers > 1 and self.redis is None:
            raise BadSettings(
                f"{self.workers} workers would not hear each other: "
                "add --redis redis://HOST:PORT (or take --workers 1)"
            )
        if self.secret is None and not is_loopback(self.host):
            raise BadSettings(
                f"{self.host} is reachable from other machines: set {_PREFIX}SECRET_FILE "
                "(or bind to 127.0.0.1)"
            )

    def frequent_questions(self) -> tuple[str, ...]:
        """Read the questions that are often asked; raises `BadSettings`."""
        if self.frequent_questions_file is None:
            return ()
        try:
            lines = self.frequent_questions_file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            name = f"{_PREFIX}FREQUENT_QUESTIONS_FILE"
            raise BadSettings(f"{name}: {error}") from error
        return tuple(line.strip() for line in lines if line.strip())

    @property
    def is_open(self) -> bool:
        """Whether anybody may join without a token."""
        return self.secret is None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except (KeyError, ValueError):
        return False


def from_environment(environment: Mapping[str, str] = os.environ, **flags: Any) -> Settings:
    """Read `CONSILIUM_<FIELD>`; flags that are not None win. Raises `BadSettings`.

    `CONSILIUM_SECRET_FILE` names a file with the secret; lists are separated by commas.
    """
    known = {each.name: each for each in fields(Settings)}
    values: dict[str, Any] = {}
    for name, each in known.items():
        if (text := environment.get(_PREFIX + name.upper())) is not None:
            values[name] = _parse(name, str(each.type), text)
    if (path := environment.get(_PREFIX + "SECRET_FILE")) is not None:
        try:
            values["secret"] = Path(path).read_text().strip()
        except OSError as error:
            raise BadSettings(f"{_PREFIX}SECRET_FILE: {error.strerror}: {path}") from error
    if unknown := flags.keys() - known.keys():
        raise BadSettings(f"no such setting: {', '.join(sorted(unknown))}")
    values.update({name: value for name, value in flags.items() if value is not None})
    return Settings(**values)


_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


def _parse(name: str, kind: str, text: str) -> Any:
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
    except ValueError as error:
        raise BadSettings(f"{_PREFIX}{name.upper()}={text!r} is no number") from error
    if kind == "bool":
        if (truth := _TRUTHS.get(text.strip().lower())) is None:
            raise BadSettings(f"{_PREFIX}{name.upper()}={text!r} is neither true nor false")
        return truth
    if kind.startswith("Path"):
        return Path(text)
    if kind.startswith("tuple"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text
