"""One printable page without scripts or links: pictures with their marks, values, words.

Whatever people or files said is escaped by `e`; the page's own policy forbids scripts besides.
"""

from __future__ import annotations

import base64
from html import escape as e

from protocol.shapes import Actor, LabRow, SpeechRow
from protocol.state import AnnotationState, AssetState, CommentState, TurnState
from server.export import case as c
from server.export.geometry import bounds
from server.export.stills import small
from server.export.w3c import element

MAX_PICTURES = 200
_BADGE = f'<span class="unreviewed" title="{e(c.UNREVIEWED_SENTENCE)}">unreviewed</span>'
_STYLE = """
:root { color-scheme: light; --warning: #b25a00; --critical: #b00020; --note: #00695c; }
body { font: 15px/1.5 system-ui, "Noto Sans CJK SC", sans-serif; color: #1a1a1a;
  margin: 2rem auto; max-width: 60rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
.meta, figcaption { color: #555; font-size: .87rem; }
.caution { border: 2px solid var(--warning); border-radius: 6px; padding: .6rem 1rem; }
figure { margin: 0 0 1rem; break-inside: avoid; }
.picture { position: relative; display: inline-block; max-width: 100%; }
.picture img { display: block; max-width: 100%; max-height: 22cm; }
.picture svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }
svg .mark { fill: none; stroke-width: 2px; vector-effect: non-scaling-stroke; stroke: #00e5a8; }
svg .warning { stroke: #ffb300; } svg .critical { stroke: #ff1744; }
svg .machine { stroke-dasharray: 7 4; }
svg text { fill: #fff; stroke: #000; stroke-width: .25em; paint-order: stroke; font-weight: 700; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }
th, td { border: 1px solid #ccc; padding: .25rem .5rem; text-align: left; vertical-align: top; }
th { background: #f3f3f3; } tr { break-inside: avoid; }
.warning-text, .high, .low, .abnormal { color: var(--warning); font-weight: 700; }
.critical-text { color: var(--critical); font-weight: 700; }
.unreviewed { border: 1px dashed var(--warning); color: var(--warning); border-radius: 4px;
  font-size: .8rem; padding: 0 .35rem; white-space: nowrap; }
.words { white-space: pre-wrap; margin: .2rem 0 .8rem; }
@media print { body { margin: 0; max-width: none; } h2 { break-after: avoid; } }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_FLAGS = {"low": "↓ low", "high": "↑ high", "abnormal": "abnormal", "normal": "normal"}


def write(case: c.Case) -> bytes:
    """The page, in UTF-8."""
    parts = [_head(case)]
    left = MAX_PICTURES
    for asset in c.standing_assets(case):
        text, shown = _asset(case, asset, left)
        left -= shown
        parts.append(text)
    if case.snapshot.turns:
        parts += ["<h2>Questions and answers</h2>", *map(_turn, case.snapshot.turns)]
    if loose := c.comments_on(case, None):
        parts += ["<h2>Comments</h2>", *map(_comment, loose)]
    parts.append("</body></html>")
    # A lone surrogate cannot come from the log; should one, it is a question mark here.
    return "\n".join(parts).encode("utf-8", "replace")


def _head(case: c.Case) -> str:
    everybody = {comment.by.id: comment.by for comment in case.snapshot.comments}
    everybody |= {mark.by.id: mark.by for mark, _ in c.standing_marks(case)}
    everybody |= {turn.by.id: turn.by for turn in case.snapshot.turns}
    people = "; ".join(_who(by) for by in everybody.values() if by.kind == "person")
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Room {e(case.room)}</title><style>{_STYLE}</style></head><body>
<h1>Room {e(case.room)}</h1>
<p class="meta">As of event {case.snapshot.seq} of {e(case.snapshot.epoch)}, {c.moment(case.at)}
{"· " + e(people) if people else ""}</p>
<p class="caution">This page is a record and signed by nobody. {_BADGE} and dashed lines:
{e(c.UNREVIEWED_SENTENCE)} Values were read by a machine.</p>"""


def _asset(case: c.Case, asset: AssetState, left: int) -> tuple[str, int]:
    """Everything about one asset, and how many pictures of it are shown."""
    marks = [mark for mark, on in c.standing_marks(case) if on.asset == asset.asset]
    numbers = {mark.annotation.id: number for number, mark in enumerate(marks, 1)}
    facts = [asset.media_type or asset.kind]
    if asset.width:
        facts.append(f"{asset.width} × {asset.height} px")
    if asset.duration_s:
        facts.append(f"{asset.duration_s:.1f} s")
    if asset.sha256 is not None:
        facts.append(f"SHA-256 {asset.sha256}")
    parts = [
        f"<section><h2>{e(asset.name or asset.asset)}</h2>",
        f'<p class="meta">{e(" · ".join(facts))} · by {e(_who(asset.by))}</p>',
    ]
    shown = 0
    for frame in _frames(asset, marks):
        on_it = [mark for mark in marks if mark.annotation.target.frame == frame]
        figure = _figure(case, asset, frame, on_it, numbers) if shown < left else ""
        if figure:
            shown += 1
        elif on_it:
            figure = f'<p class="meta">Frame {frame} is not shown here.</p>'
        parts.append(figure)
    parts += [_marks(case, asset, marks, numbers), _rows(asset)]
    parts += [_comment(each) for each in c.comments_on(case, asset.asset)]
    return "\n".join(filter(None, [*parts, "</section>"])), shown


def _frames(asset: AssetState, marks: list[AnnotationState]) -> list[int]:
    """The frames to show: the first, and each that has marks."""
    marked = {mark.annotation.target.frame for mark in marks}
    first = asset.keyframes[0].frame if asset.keyframes else 0
    return sorted(marked | ({first} if asset.width or asset.keyframes else set()))


def _figure(
    case: c.Case,
    asset: AssetState,
    frame: int,
    marks: list[AnnotationState],
    numbers: dict[str, int],
) -> str:
    files = case.files_of(asset)
    # The picture of a medical image is its first frame.
    path = files.frames.get(frame, "") if asset.keyframes or frame > 0 else files.picture
    picture = small(content) if (content := c.read(path)) else None
    if picture is None:
        return ""
    pixels, kind = picture
    width, height = c.frame_size(asset, frame)
    drawn = "".join(_drawn(mark, numbers[mark.annotation.id], width, height) for mark in marks)
    data = base64.b64encode(pixels).decode()
    caption = _place(asset, frame)
    return (
        f'<figure><div class="picture"><img alt="{e(asset.name)}" src="data:{kind};base64,{data}">'
        f'<svg viewBox="0 0 {width} {height}">{drawn}</svg></div>'
        f"<figcaption>{e(caption)}</figcaption></figure>"
    )


def _drawn(mark: AnnotationState, number: int, width: int, height: int) -> str:
    annotation = mark.annotation
    box = bounds(annotation.shape)
    size = max(width, height) / 45
    style = f"mark {annotation.severity}" + (" machine" if c.is_unreviewed(mark.by) else "")
    return (
        element(annotation.shape, **{"class": style})
        + f'<text x="{box.x:.6g}" y="{max(box.y - size / 4, size):.6g}" '
        f'font-size="{size:.4g}">{number}</text>'
    )


def _marks(
    case: c.Case, asset: AssetState, marks: list[AnnotationState], numbers: dict[str, int]
) -> str:
    rows = []
    for mark in marks:
        annotation = mark.annotation
        at = case.times.get(mark.changed_seq)
        place = _place(asset, annotation.target.frame)
        rows.append(
            f"<tr><td>{numbers[annotation.id]}</td><td>{e(annotation.label)}</td>"
            f'<td class="{annotation.severity}-text">{annotation.severity}</td>'
            f"<td>{e(place)}</td><td>{e(_who(mark.by))} {_badge(mark.by)}</td>"
            f"<td>{c.moment(at) if at is not None else ''}</td></tr>"
        )
    return _table(("#", "Mark", "Severity", "Where", "By", "When"), rows)


def _rows(asset: AssetState) -> str:
    lab = [
        f'<tr><td>{e(row.analyte)}</td><td class="{row.flag}">{e(row.value)}</td>'
        f"<td>{e(row.unit)}</td><td>{e(row.range)}</td>"
        f'<td class="{row.flag}">{_FLAGS.get(row.flag, "")}</td></tr>'
        for row in asset.rows
        if isinstance(row, LabRow)
    ]
    said = [
        f"<tr><td>{row.start:.1f} s</td><td>{e(row.text)}</td></tr>"
        for row in asset.rows
        if isinstance(row, SpeechRow) and row.final
    ]
    values = _table(("Read by a machine", "Value", "Unit", "Range", "Flag"), lab)
    return values + _table(("At", "Written down by a machine"), said)


def _table(heads: tuple[str, ...], rows: list[str]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{e(each)}</th>" for each in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _turn(turn: TurnState) -> str:
    ending = "" if turn.status == "done" else f" ({turn.status})"
    return (
        f'<div><p class="meta">{e(_who(turn.by))}, {c.moment(turn.at)}</p>'
        f'<p class="words"><strong>{e(turn.question)}</strong></p>'
        f'<p class="meta">{e(turn.model or "model")}{ending} {_BADGE}</p>'
        f'<p class="words">{e(turn.text)}</p></div>'
    )


def _comment(comment: CommentState) -> str:
    return (
        f'<div><p class="meta">{e(_who(comment.by))}, {c.moment(comment.at)} '
        f'{_badge(comment.by)}</p><p class="words">{e(comment.text)}</p></div>'
    )


def _badge(by: Actor) -> str:
    return _BADGE if c.is_unreviewed(by) else ""


def _who(by: Actor) -> str:
    return f"{by.name} ({by.department})" if by.department else by.name


def _place(asset: AssetState, frame: int) -> str:
    """Where a frame is, in words; "" in a still picture."""
    for keyframe in asset.keyframes:
        if keyframe.frame == frame:
            return f"at {keyframe.pts_us / 1e6:.2f} s"
    return f"frame {frame + 1} of {asset.frames}" if asset.frames > 1 else ""
