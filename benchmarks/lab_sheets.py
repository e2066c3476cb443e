"""How well lab sheets are read when a camera or a fax spoiled them.

    python -m benchmarks.lab_sheets [--sheets 60]

Draws sheets whose every value is known, lays most of them askew, blurs, darkens and roughens them
and saves them as JPEG; prints what was read otherwise, then the shares. A flag is wrong when it is
another one than the true one; `unknown` is not wrong.
"""

from __future__ import annotations

import argparse
import io
import random
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from engine.api import LabRow
from engine.perception.wire import Pixels, Read
from engine.perception.worker import Worker
from tests.support.labsheet_page import photographed
from tests.support.labsheet_render import RenderedSheet, TrueRow, reads_same, render_sheet


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sheets", type=int, default=60)
    sheets = parser.parse_args().sheets
    worker = Worker(
        ocr_threads=2,
        ocr_side_px=960,
        ocr_batch=6,
        ocr_min_score=0.5,
        speech_model="",
        speech_threads=1,
    )
    chance = random.Random(11)
    total = exact = flagged = wrong = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(100, 100 + sheets):
            sheet = render_sheet(seed, "zh" if seed % 2 else "en")
            found = read(worker, spoiled(sheet, chance, seed), Path(folder) / "pixels")
            total += len(sheet.rows)
            for true in sheet.rows:
                row = found.get(true.analyte)
                is_exact = row is not None and _is_same(true, row)
                exact += is_exact
                flagged += row is not None and row.flag == true.flag
                wrong += row is not None and row.flag not in (true.flag, "unknown")
                if not is_exact:
                    print(f"sheet {seed}: {true}\n  was read as {row}")
    print(f"{sheets} sheets, {total} rows, {(time.monotonic() - began) / sheets:.1f} s a sheet")
    print(f"value, unit and range exact  {exact / total:.2%}")
    print(f"flag right                   {flagged / total:.2%}")
    print(f"wrong flags said             {wrong}")


def spoiled(sheet: RenderedSheet, chance: random.Random, seed: int) -> np.ndarray:
    """Return the pixels of the sheet as somebody's camera has them."""
    with Image.open(io.BytesIO(sheet.png)) as drawn:
        picture = drawn.convert("RGB")
    if chance.random() < 0.7:
        picture, _ = photographed(
            picture,
            [],
            degrees=chance.uniform(-5, 5),
            keystone=chance.choice([0, chance.uniform(0, 0.12)]),
            lean=chance.choice([0, chance.uniform(-0.1, 0.1)]),
        )
    picture = picture.filter(ImageFilter.GaussianBlur(chance.choice([0, 0.6, 1.0])))
    pixels = np.asarray(picture).astype(np.float32)
    pixels *= np.linspace(chance.uniform(0.7, 1), 1, pixels.shape[1])[None, :, None]
    noise = np.random.default_rng(seed).normal(0, chance.choice([0, 6, 14]), pixels.shape)
    rough = Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))
    encoded = io.BytesIO()
    rough.save(encoded, "JPEG", quality=chance.choice([40, 60, 90]))
    with Image.open(encoded) as saved:
        return np.asarray(saved.convert("RGB"))


def read(worker: Worker, pixels: np.ndarray, path: Path) -> dict[str, LabRow]:
    """Return what a reader's process finds, by analyte."""
    path.write_bytes(pixels.tobytes())
    place = Pixels(path=str(path), width=pixels.shape[1], height=pixels.shape[0])
    answers = worker.answers(Read(media="m", pixels=place, cpu_s=1_000), io.BytesIO())
    return {row.analyte: row for row in answers if isinstance(row, LabRow)}


def _is_same(true: TrueRow, row: LabRow) -> bool:
    """Whether value, unit and bounds are those of the sheet; a dash may be read as a tilde."""
    has_same_range = (
        reads_same(true.range, row.range)
        if true.number is None
        else (true.number, true.low, true.high) == (row.number, row.low, row.high)
    )
    return reads_same(true.value, row.value) and reads_same(true.unit, row.unit) and has_same_range


if __name__ == "__main__":
    main()
