"""The printable page: whole, escaped, marks where they are, and what nobody reviewed labelled."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image

from engine.perception.dicomlook import encode_gray
from engine.perception.voi import Gray, Window
from protocol.shapes import Actor, SpeechRow, Target
from server.export import html
from server.export.case import Files
from tests.support import cases

VOID = {"meta", "img", "rect", "ellipse", "circle", "polygon", "polyline"}


class Reader(HTMLParser):
    """Reads a page strictly: every element is closed where it should be."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.feed(page.decode())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.seen if name == tag]

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


def read(*assets, **room):
    return Reader(html.write(cases.room(*assets, **room)))


def test_marks_are_drawn_in_the_picture_s_own_pixels(turned_photo):
    page = read(cases.photo(), marks=cases.every_shape(), files={"photo": turned_photo})
    (drawing,) = page.all("svg")
    assert drawing["viewbox"] == "0 0 80 120"
    (rectangle,) = page.all("rect")
    box = cases.SHAPES["rectangle"]
    for name in ("x", "y", "width", "height"):
        assert float(rectangle[name]) == pytest.approx(getattr(box, name), abs=0.01)
    (image,) = page.all("img")
    data = base64.b64decode(image["src"].partition("base64,")[2])
    assert Image.open(io.BytesIO(data)).size == (80, 120), "upright"
    assert "a polyline" in page.words and "23" in page.words


def test_whatever_anybody_says_stays_text(turned_photo):
    evil = "</style></script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
    who = Actor(id="p", name=evil, department=evil)
    asset = cases.photo(
        name=evil,
        media_type=evil,
        by=who,
        rows=(
            cases.lab_row(analyte=evil, value=evil, unit=evil, range=evil),
            SpeechRow(id="s", start=0, end=1, text=evil),
        ),
    )
    page = read(
        asset,
        marks=(cases.mark("m", cases.SHAPES["point"], label=evil, by=who),),
        comments=(
            replace(cases.comment(evil), by=who),
            replace(cases.comment(evil, Target(asset="photo"), "c2"), by=who),
        ),
        turns=(replace(cases.answered(evil), question=evil, by=who, model=evil),),
        files={"photo": turned_photo},
    )
    assert page.all("script") == [] and [each["alt"] for each in page.all("img")] == [evil]
    assert page.words.count("alert(1)") >= 20
    for _, attributes in page.seen:
        assert not any(name.startswith("on") for name in attributes)
        assert "script" not in attributes.get("href", "")


def test_the_page_loads_nothing_from_anywhere(turned_photo):
    case = cases.room(cases.photo(), marks=cases.every_shape(), files={"photo": turned_photo})
    page = html.write(case).decode()
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!data:image/)", page)
    assert "url(" not in page and "@import" not in page


def test_what_the_model_made_is_labelled_and_dashed(turned_photo):
    shape = cases.SHAPES["rectangle"]
    marks = (cases.mark("mine", shape), cases.mark("its", shape, by=cases.MODEL, label="low"))
    page = read(
        cases.photo(), marks=marks, files={"photo": turned_photo}, turns=(cases.answered(),)
    )
    mine, its = page.all("rect")
    assert "machine" not in mine["class"] and "machine" in its["class"]
    badges = [each for each in page.all("span") if each.get("class") == "unreviewed"]
    assert len(badges) == 3, "the caution, the mark, the answer"
    assert "not reviewed by a person" in page.words


def test_values_words_and_answers_are_there():
    sheet = cases.photo(
        rows=(cases.lab_row(), SpeechRow(id="s", start=1.5, end=2, text="Look here."))
    )
    page = read(sheet, turns=(cases.answered(),), comments=(cases.comment("糖化血红蛋白"),))
    for words in ("Sodium", "128", "135-145", "↓ low", "1.5 s", "Look here.", "糖化血红蛋白"):
        assert words in page.words
    assert "Mei <Li> (Radiology)" in page.words
    assert "What is <wrong>?" in page.words and "The sodium is low." in page.words


def test_frame_27_is_shown_with_its_mark_and_one_that_is_gone_is_named(tmp_path):
    samples = np.full((120, 80), 7, np.int16)
    gray = Gray(windows=(Window(center=0, width=100, name=""),))
    (tmp_path / "27").write_bytes(encode_gray(samples, gray))
    files = {"series": Files(frames={27: str(tmp_path / "27"), 5: str(tmp_path / "5")})}
    point = cases.SHAPES["point"]
    marks = (
        cases.mark("a", point, "series", frame=27, label="here"),
        cases.mark("b", point, "series", frame=5, label="there"),
    )
    page = read(cases.series(), marks=marks, files=files)
    assert len(page.all("img")) == len(page.all("circle")) == 1
    assert "frame 28 of 30" in page.words and "Frame 5 is not shown" in page.words


def test_a_still_has_its_time(tmp_path):
    Image.new("RGB", (80, 120)).save(tmp_path / "3", "JPEG")
    files = {"film": Files(frames={3: str(tmp_path / "3")})}
    marks = (cases.mark("a", cases.SHAPES["point"], "film", frame=3, pts_us=4_500_000),)
    assert "at 4.50 s" in read(cases.video(), marks=marks, files=files).words


def test_there_is_an_end_to_pictures(turned_photo):
    many = [cases.photo(f"p{n}") for n in range(html.MAX_PICTURES + 3)]
    files = {asset.asset: turned_photo for asset in many}
    assert len(read(*many, files=files).all("img")) == html.MAX_PICTURES
