"""Finds text in pixels and reads it piece by piece, in reading order."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from engine.api import TextRow
from engine.perception.ink import Rect, tight_pieces
from engine.perception.straight import Pixels, Quad, Tilt, tilt_of

# The weights lie inside the package; naming them keeps rapidocr from ever asking a network.
DETECTOR_FILE = "PP-OCRv6_det_small.onnx"
RECOGNISER_FILE = "PP-OCRv6_rec_small.onnx"

# The detector works on multiples of 32 px and finds nothing in less.
_DETECTOR_STEP_PX = 32
# A picture smaller than this is enlarged twice: letters under 8 px are not found otherwise.
_SMALL_SIDE_PX = 480

# Where the boxes of the first look are lower than this, a second one at twice the size finds the
# lines that the first took for one. A box is about twice as high as its letters.
_FINE_PRINT_PX = 12

# What an A4 page takes of the square of its longer side.
_PAGE_SHARE = 0.7

# Narrower pieces are padded to this: at rapidocr's own 320 px the short cells of a sheet, which
# are most of it, take 1.8 times as long and read the same.
_NARROWEST_PX = 160

# The detector gives at most 1,000 boxes, of which some are parted; a page of small print has 200.
MAX_PIECES = 1000

# A box that climbs by more than this share of its height is slanted and has to be turned; the tail
# of a "g" tilts the box of a short upright word by less.
_SLANT = 0.25


def model_dir() -> Path:
    """Return the folder of the weights that rapidocr ships."""
    import rapidocr

    return Path(rapidocr.__file__).parent / "models"


@dataclass(frozen=True)
class Piece:
    """A stretch of text that was found: its ink's box, and what the recogniser is shown."""

    box: Rect
    line: Rect
    crop: Pixels


@dataclass(frozen=True)
class Page:
    """A page laid straight, and its pieces in reading order; `tilt` says how it lay, if it did.

    The boxes of pieces are those of `pixels`, which are the picture's own where `tilt` is `None`.
    """

    pixels: Pixels
    tilt: Tilt | None
    pieces: list[Piece]


@dataclass(frozen=True)
class ReadPiece:
    """A piece and what it says; `score` is 0 to 1."""

    box: Rect
    text: str
    score: float


class TextReader:
    """PP-OCR's detector and recogniser, driven apart so that text comes out as it is read."""

    def __init__(self, *, threads: int, side_px: int, batch: int, min_score: float) -> None:
        self._side_px = side_px
        self._batch = batch
        self._min_score = min_score
        cv2.setNumThreads(threads)
        # Its import installs a logger that prints every load in colour.
        from rapidocr.ch_ppocr_det import TextDetector
        from rapidocr.ch_ppocr_rec import TextRecInput, TextRecognizer

        logging.getLogger("RapidOCR").setLevel(logging.ERROR)
        config = _config(threads)
        self._detector = TextDetector(config.Det)
        self._recogniser = TextRecognizer(config.Rec)
        self._recogniser_input = TextRecInput

    def page(self, pixels: Pixels) -> Page:
        """Find the text in `pixels` ([height, width, 3], RGB), and lay a tilted page straight."""
        quads = self._look(pixels)
        tilt = tilt_of(quads, pixels.shape[1], pixels.shape[0])
        if tilt is not None:
            # The detector finds tilted lines as well; looking again would double its time.
            pixels, quads = tilt.flatten(pixels), [tilt.flat_quad(quad) for quad in quads]
        pieces = [piece for quad in quads for piece in _pieces(pixels, quad)]
        return Page(pixels, tilt, _in_reading_order(pieces)[:MAX_PIECES])

    def read(self, pieces: list[Piece]) -> Iterator[tuple[int, list[ReadPiece]]]:
        """Yield how many pieces are done and what the newest of them say.

        A piece that holds no text with enough certainty counts as done and is left out.
        """
        start = 0
        while start < len(pieces):
            # Pieces of one width cost least together, so two batches are sorted by width; the
            # first batch goes alone because somebody waits for it.
            count = self._batch if start == 0 else 2 * self._batch
            window = pieces[start : start + count]
            start += len(window)
            yield start, self._recognise(window)

    def _look(self, pixels: Pixels) -> list[Quad]:
        height, width = pixels.shape[:2]
        if max(height, width) <= _SMALL_SIDE_PX:
            return self._detect(pixels, 2.0)
        # A long screenshot gets the pixels of a page: by its longer side alone its letters vanish.
        by_area = self._side_px * math.sqrt(_PAGE_SHARE / (height * width))
        scale = min(1.0, max(self._side_px / max(height, width), by_area))
        quads = self._detect(pixels, scale)
        if scale < 1 and quads and _line_height(quads) * scale < _FINE_PRINT_PX:
            quads = self._detect(pixels, min(1.0, 2 * scale))
        return quads

    def reads_again(self, pixels: Pixels, row: TextRow) -> bool:
        """Whether a crop of other margins and twice the size says the same."""
        box = row.box
        pad = max(2, round(box.height * 0.4))
        top, left = max(0, round(box.y) - pad), max(0, round(box.x) - pad)
        bottom, right = round(box.y + box.height) + pad, round(box.x + box.width) + pad
        crop = cv2.resize(
            np.ascontiguousarray(pixels[top:bottom, left:right]),
            None,
            fx=2,
            fy=2,
            interpolation=cv2.INTER_CUBIC,
        )
        bgr = np.asarray(crop, dtype=np.uint8)[:, :, ::-1]
        result = self._recogniser(self._recogniser_input(img=[np.ascontiguousarray(bgr)]))
        said = (result.txts or ("",))[0]
        return "".join(said.split()) == "".join(row.text.split())

    def _detect(self, pixels: Pixels, scale: float) -> list[Quad]:
        """Return the corners of boxes in the coordinates of `pixels`, clockwise from top left."""
        height, width = pixels.shape[:2]
        small_width, small_height = round(width * scale), round(height * scale)
        if min(small_width, small_height) < _DETECTOR_STEP_PX // 2:
            return []
        method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
        small = cv2.resize(pixels, (small_width, small_height), interpolation=method)
        found = self._detector(cv2.cvtColor(small, cv2.COLOR_RGB2BGR)).boxes
        factors = np.array([width / small_width, height / small_height], np.float32)
        return [] if found is None else [quad.astype(np.float32) * factors for quad in found]

    def _recognise(self, window: list[Piece]) -> list[ReadPiece]:
        """Read the pieces batch by batch in order of width; the result is in their own order."""
        by_width = sorted(
            range(len(window)), key=lambda at: window[at].crop.shape[1] / window[at].crop.shape[0]
        )
        said: dict[int, tuple[str, float]] = {}
        for start in range(0, len(by_width), self._batch):
            batch = by_width[start : start + self._batch]
            result = self._recogniser(self._recogniser_input(img=[window[at].crop for at in batch]))
            for at, text, score in zip(batch, result.txts or (), result.scores, strict=True):
                said[at] = (text.strip(), float(score))
        return [
            ReadPiece(window[at].box, *said[at])
            for at in sorted(said)
            if said[at][0] and said[at][1] >= self._min_score
        ]


def _line_height(quads: list[Quad]) -> float:
    return float(np.median([np.linalg.norm(quad[3] - quad[0]) for quad in quads]))


def _config(threads: int) -> Any:
    import rapidocr
    from rapidocr.utils.parse_parameters import ParseParams

    config = ParseParams.load(Path(rapidocr.__file__).parent / "config.yaml")
    config = ParseParams.update_batch(
        config,
        {
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            "Det.model_path": str(model_dir() / DETECTOR_FILE),
            "Rec.model_path": str(model_dir() / RECOGNISER_FILE),
            # The picture comes in the right size already; a side of 1 px never enlarges it.
            "Det.limit_type": "min",
            "Det.limit_side_len": 1,
            "Rec.rec_img_shape": [3, 48, _NARROWEST_PX],
        },
    )
    for step in (config.Det, config.Rec):
        step.engine_cfg = config.EngineConfig["onnxruntime"]
        step.model_root_dir = str(model_dir())
        step.font_path = None
    return config


def _pieces(pixels: Pixels, quad: Quad) -> list[Piece]:
    height, width = pixels.shape[:2]
    around = Rect(
        max(0, int(quad[:, 0].min())),
        max(0, int(quad[:, 1].min())),
        min(width, int(np.ceil(quad[:, 0].max()))),
        min(height, int(np.ceil(quad[:, 1].max()))),
    )
    if around.width < 2 or around.height < 2:
        return []
    climb, line_height = abs(quad[1][1] - quad[0][1]), float(np.linalg.norm(quad[3] - quad[0]))
    if climb > _SLANT * line_height:
        from rapidocr.utils.process_img import get_rotate_crop_image

        crop = get_rotate_crop_image(np.ascontiguousarray(pixels), quad.copy())
        return [Piece(around, around, _bgr(crop))] if min(crop.shape[:2]) > 1 else []
    pad = max(2, around.height // 5)
    pieces = []
    for ink in tight_pieces(pixels, around):
        left, right = max(0, ink.x0 - pad), min(width, ink.x1 + pad)
        top, bottom = min(around.y0, ink.y0), max(around.y1, ink.y1)
        crop = pixels[top:bottom, left:right]
        if crop.shape[0] >= 2 * crop.shape[1]:
            crop = np.rot90(crop)
        pieces.append(Piece(ink, around, _bgr(crop)))
    return pieces


def _bgr(crop: Pixels) -> Pixels:
    return np.ascontiguousarray(crop[:, :, ::-1])


def _in_reading_order(pieces: list[Piece]) -> list[Piece]:
    """Sort by lines from the top, inside a line from the left."""
    lines: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda one: one.line.y0 + one.line.y1):
        if lines and _is_same_line(lines[-1][0], piece):
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return [piece for line in lines for piece in sorted(line, key=lambda one: one.box.x0)]


def _is_same_line(first: Piece, second: Piece) -> bool:
    distance = abs(first.line.y0 + first.line.y1 - second.line.y0 - second.line.y1) / 2
    return distance < min(first.line.height, second.line.height) / 2
