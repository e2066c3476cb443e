"""What perception found in a media item, as the lines that stand in a prompt."""

from __future__ import annotations

from msgspec.structs import replace

from engine.api import Imaging, LabRow, Seen, TextRow
from engine.text.spans import covers

# Rows that matter first, each a sentence: of a table with a column of flags the embedded model
# called every value high.
_SECTIONS = (
    ("Out of range:", ("low", "high", "abnormal")),
    ("Normal:", ("normal",)),
    ("No range to compare with:", ("unknown",)),
)


def sheet(seen: Seen, with_text: bool, is_shown: bool, is_heard: bool) -> str:
    """Tell what was read from a media item; of what is given itself, only what is certain."""
    rows: tuple[TextRow | LabRow, ...] = (*seen.text_rows, *seen.lab_rows)
    moments = sorted({(r.frame, r.pts_us) for r in rows if r.pts_us is not None})
    if not moments:
        return _still_sheet(seen, with_text, is_shown, is_heard)
    # A video is a picture for each moment at which something was read, its sound first.
    sheets: list[str] = []
    if seen.speech or is_heard:
        sound = replace(seen, text_rows=(), lab_rows=())
        sheets.append(_still_sheet(sound, with_text, is_shown, is_heard))
    for frame, pts_us in moments:
        part = replace(
            seen,
            name=f"{seen.name} at {_clock(pts_us or 0)}",
            text_rows=tuple(row for row in seen.text_rows if row.frame == frame),
            lab_rows=tuple(row for row in seen.lab_rows if row.frame == frame),
            speech=(),
        )
        sheets.append(_still_sheet(part, with_text, is_shown, is_heard=False))
    return "\n\n".join(sheets)


def _clock(pts_us: int) -> str:
    minutes, seconds = divmod(pts_us // 1_000_000, 60)
    return f"{minutes}:{seconds:02}"


def _still_sheet(seen: Seen, with_text: bool, is_shown: bool, is_heard: bool) -> str:
    name = " ".join(seen.name.split()) or "picture"
    lines: list[str] = []
    if is_heard:
        lines.append(f"Recording {name}.")
    elif seen.speech and with_text:
        lines.append(f"Transcript of {name}:")
        lines += [" ".join(said.text.split()) for said in seen.speech]
    elif seen.speech:
        lines.append(f"The transcript of {name} is left out.")
    boxes = [row.box for row in seen.lab_rows]
    free = [row for row in seen.text_rows if not any(covers(box, row.box) for box in boxes)]
    if is_shown:
        lines.append(f"Picture {name}.")
    elif free and with_text:
        lines.append(f"Text read from {name}:")
        lines += [" ".join(row.text.split()) for row in free]
    elif free:
        lines.append(f"{len(free)} lines of text read from {name} are left out.")
    # Right before the question: with other text in between the embedded model answered from
    # that, and called a sheet with four values out of range normal.
    if seen.lab_rows:
        lines += ["", f"Lab results from {name}."]
        for title, flags in _SECTIONS:
            rows = [row for row in seen.lab_rows if row.flag in flags]
            lines += [title, *(_lab_line(row) for row in rows)] if rows else []
        if all(row.flag == "normal" for row in seen.lab_rows):
            lines.append("Out of range: none.")
    if seen.imaging is not None:
        lines.append(f"Medical image {name}: {', '.join(_imaging_parts(seen, seen.imaging))}.")
    if seen.missing:
        lines.append(f"{name} was not read to its end.")
    if not lines and seen.media_type.startswith("video/"):
        lines.append(f"Video {name} ({seen.duration_s:.0f} s): no text was found in it.")
    if not lines and seen.media_type.startswith("audio/"):
        lines.append(f"Recording {name}: no speech was found in it.")
    if not lines:
        lines.append(f"Picture {name} ({seen.width}x{seen.height}): no text was found in it.")
    return "\n".join(lines).strip()


def _imaging_parts(seen: Seen, told: Imaging) -> list[str]:
    """What was recorded and how; identities never come as far as here."""
    words = [told.modality, told.body_part.lower(), told.laterality, told.view]
    parts = [word for word in words if word]
    if seen.frames > 1:
        parts.append(f"{seen.frames} frames")
    parts.append(f"{seen.width}x{seen.height} pixels")
    if told.pixel_spacing is not None:
        rows, columns = told.pixel_spacing
        parts.append(f"pixel spacing {rows:g} x {columns:g} mm")
    if told.window_center is not None and told.window_width is not None:
        parts.append(f"window center {told.window_center:g} width {told.window_width:g}")
    return parts


def _lab_line(row: LabRow) -> str:
    analyte, value, unit, limits = (
        " ".join(cell.split()) for cell in (row.analyte, row.value, row.unit, row.range)
    )
    told = f"is {row.flag}" if row.flag != "unknown" else "cannot be judged"
    reading = " ".join(part for part in (analyte, value, unit) if part)
    return f"- {reading} {told}" + (f" (range {limits})" if limits else "")
