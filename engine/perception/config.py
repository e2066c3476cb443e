"""How much perception may spend on one media item and how many processes do the work."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class PerceptionConfig:
    """Limits of perception; sizes in bytes or pixels, times in seconds.

    `decode_s` and `read_s` are wall clock for one item inside a worker, from the moment the worker
    took it; `hear_s` and `listen_s` are those of decoding a whole recording and of one piece of
    it; `film_s` is that of decoding a video; `feed_idle_s` is how long an item without a path may
    wait for its next chunk.
    `max_open` counts items that are waiting or being looked at: one more is answered `overloaded`.
    Raises `ValueError` naming the field that is out of range.
    """

    max_bytes: int = 512 * 1024 * 1024
    max_pixels: int = 100_000_000
    # Deflate makes a thousand bytes of one at most, and a blank page is all but that; only formats
    # that say "and so on" make more. Counted from 64 MiB of pixels on.
    max_ratio: int = 2_000
    # 500 Mpx are 2,000 frames of 512 x 512, and 1 GB on the disk as 16-bit samples.
    max_series_pixels: int = 500_000_000
    max_open: int = 64
    decode_s: float = 60.0
    read_s: float = 120.0
    feed_idle_s: float = 300.0
    # 100 Mpx as RGBA plus its upright copy plus one RGB composite is 1.1 GB; the rest is head room.
    worker_memory_bytes: int = 3 * 1024 * 1024 * 1024
    decode_workers: int = 1
    ocr_threads: int = 2
    # Detection costs 0.4 s at 1,000 px and 1.0 s at 1,600 px on two cores. Letters 6 px high are
    # still found, and boxes are measured on the full picture; fine print gets a second look.
    ocr_side_px: int = 960
    ocr_batch: int = 6
    ocr_min_score: float = 0.5
    # The folder of a Whisper model; without one recordings are answered `media_unsupported`.
    speech_model: str = ""
    speech_threads: int = 2
    # Each recording and each open microphone has a decoder of its own, of 46 MB.
    max_hearing: int = 16
    max_sound_s: float = 4 * 3600.0
    # Videos are decoded two at a time, each by a process of its own.
    max_films: int = 2
    max_film_s: float = 2 * 3600.0
    film_s: float = 1200.0
    # What a still of a camera may be, and how long one that shows nothing new may stay unsaid.
    max_still_bytes: int = 8 * 1024 * 1024
    still_due_s: float = 10.0
    hear_s: float = 300.0
    listen_s: float = 120.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, str) and not value > 0:
                raise ValueError(f"{field.name} must be above 0")
        if self.decode_workers > 8:
            raise ValueError("decode_workers must be at most 8")
        if self.ocr_threads > 64:
            raise ValueError("ocr_threads must be at most 64")
        if not 320 <= self.ocr_side_px <= 4096:
            raise ValueError("ocr_side_px must be between 320 and 4096")
        if self.ocr_min_score >= 1:
            raise ValueError("ocr_min_score must be below 1")
