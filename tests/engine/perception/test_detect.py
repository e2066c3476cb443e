import io
import struct
import zipfile
import zlib

import pytest
from PIL import Image

from engine.api import EngineCode, EngineError
from engine.perception.detect import identify, is_cut_short, is_declared_wrongly, is_dicom

LIMITS = {"max_bytes": 1_000_000, "max_pixels": 1_000_000}


def encoded(form, size=(40, 20), mode="RGB", **options):
    stream = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert(mode).save(stream, form, **options)
    return stream.getvalue()


def chunk(kind, payload):
    checksum = zlib.crc32(kind + payload)
    return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", checksum)


def png_header(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)


def code_of(tmp_path, content, **limits):
    path = tmp_path / "upload"
    path.write_bytes(content)
    with pytest.raises(EngineError) as refused:
        identify(str(path), **(LIMITS | limits))
    return refused.value


@pytest.mark.parametrize(
    ("form", "media_type"),
    [
        ("JPEG", "image/jpeg"),
        ("PNG", "image/png"),
        ("WEBP", "image/webp"),
        ("GIF", "image/gif"),
        ("BMP", "image/bmp"),
        ("TIFF", "image/tiff"),
    ],
)
def test_a_picture_is_known_by_its_bytes_and_not_by_its_name(tmp_path, form, media_type):
    path = tmp_path / "harmless.txt"
    path.write_bytes(encoded(form))
    kind = identify(str(path), **LIMITS)
    assert (kind.media_type, kind.width, kind.height, kind.orientation) == (media_type, 40, 20, 1)


def test_an_empty_file_is_empty(tmp_path):
    assert code_of(tmp_path, b"").code is EngineCode.MEDIA_EMPTY


def test_a_zip_that_calls_itself_a_picture_is_named_as_what_it_is(tmp_path):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.txt", "hello " * 100)
    refused = code_of(tmp_path, stream.getvalue())
    assert refused.code is EngineCode.MEDIA_UNSUPPORTED
    assert "zip" in refused.message.lower()


@pytest.mark.parametrize(
    "content",
    [
        b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        b"<!doctype html><html><body>hello</body></html>" * 5,
        b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n",
        b"MZ" + bytes(200),
        b"BMW is a maker of cars, and this is a sentence about it.",
        b"\x00",
    ],
    ids=["svg", "html", "pdf", "exe", "text that begins as a BMP", "one byte"],
)
def test_what_is_no_picture_is_unsupported(tmp_path, content):
    assert code_of(tmp_path, content).code is EngineCode.MEDIA_UNSUPPORTED


def test_E49_L53_a_header_of_50000_by_50000_pixels_is_refused_before_decoding(tmp_path):
    content = png_header(50_000, 50_000) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    refused = code_of(tmp_path, content, max_pixels=100_000_000)
    assert refused.code is EngineCode.MEDIA_TOO_MANY_PIXELS
    assert "50,000" in refused.message


def test_a_file_over_the_limit_is_too_big(tmp_path):
    assert code_of(tmp_path, encoded("PNG"), max_bytes=50).code is EngineCode.MEDIA_TOO_BIG


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF"])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_picture_without_its_end_is_truncated(tmp_path, form, share):
    content = encoded(form, (400, 300))
    path = tmp_path / "cut"
    path.write_bytes(content[: int(len(content) * share)])
    assert is_cut_short(str(path), f"image/{form.lower()}")
    path.write_bytes(content)
    assert not is_cut_short(str(path), f"image/{form.lower()}")


def test_the_end_of_an_embedded_thumbnail_is_not_the_end_of_the_jpeg(tmp_path):
    thumbnail = encoded("JPEG")
    marker = b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail
    content = encoded("JPEG", (400, 300))
    path = tmp_path / "cut"
    path.write_bytes(content[:2] + marker + content[2:-200])
    assert is_cut_short(str(path), "image/jpeg")


def test_a_damaged_header_is_corrupt(tmp_path):
    content = png_header(40, 20).replace(b"IHDR", b"IHXX") + chunk(b"IEND", b"")
    assert code_of(tmp_path, content).code is EngineCode.MEDIA_CORRUPT


def test_dimensions_are_those_of_the_turned_picture(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "turned"
    path.write_bytes(encoded("JPEG", exif=exif))
    kind = identify(str(path), **LIMITS)
    assert (kind.width, kind.height, kind.orientation) == (20, 40, 6)


@pytest.mark.parametrize("value", [0, 9, 60_000])
def test_an_orientation_that_means_nothing_is_none(tmp_path, value):
    exif = Image.Exif()
    exif[0x0112] = value
    path = tmp_path / "odd"
    path.write_bytes(encoded("JPEG", exif=exif))
    assert identify(str(path), **LIMITS).orientation == 1


@pytest.mark.parametrize(
    ("declared", "is_wrong"),
    [
        (None, False),
        ("image/png", False),
        ("application/octet-stream", False),
        ("", False),
        ("IMAGE/PNG; charset=binary", False),
        ("image/jpg", True),
        ("application/zip", True),
    ],
)
def test_a_wrong_declaration_is_noticed(declared, is_wrong):
    assert is_declared_wrongly(declared, "image/png") is is_wrong


def test_other_spellings_of_a_type_are_no_lie():
    assert not is_declared_wrongly("image/jpg", "image/jpeg")


def head_of(dataset_start: bytes) -> bytes:
    return dataset_start + b"CT\0" * 60


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\0" * 128 + b"DICM", True),
        (b"II*\0" + b"\0" * 124 + b"DICM", True),  # a TIFF reader sees a TIFF, and CT_small is so
        (head_of(b"\x08\0\x05\0CS\n\0ISO_IR 100"), True),
        (head_of(b"\0\x08\0\x05CS\0\nISO_IR 100"), True),
        (head_of(b"\x08\0\x05\0\n\0\0\0ISO_IR 100"), True),
        (head_of(b"\x02\0\0\0UL\x04\0"), True),
        (head_of(b"\x08\0\x05\0\xff\xff\xff\xff"), False),
        (b"\x08\0", False),
        (b"DICM", False),
        (b"", False),
    ],
)
def test_dicom_is_known_with_and_without_its_preamble(tmp_path, content, expected):
    path = tmp_path / "upload"
    path.write_bytes(content)
    assert is_dicom(str(path)) is expected


def bomb():
    stream = io.BytesIO()
    Image.new("RGB", (6_000, 6_000), "white").save(stream, "WEBP", lossless=True)
    return stream.getvalue()


def test_L53_a_few_bytes_that_would_fill_the_memory_are_refused_before_decoding(tmp_path):
    content = bomb()
    assert len(content) < 20_000
    refused = code_of(tmp_path, content, max_pixels=10**8)
    assert refused.code is EngineCode.MEDIA_TOO_DENSE
    assert "108,000,000" in refused.message


def test_how_dense_a_file_may_be_is_a_setting(tmp_path):
    path = tmp_path / "upload"
    path.write_bytes(bomb())
    limits = {"max_bytes": 10**6, "max_pixels": 10**8, "max_ratio": 10**6}
    assert identify(str(path), **limits).width == 6_000


def test_a_blank_page_is_as_dense_as_may_be(tmp_path):
    """Deflate makes about a thousand bytes of one."""
    stream = io.BytesIO()
    Image.new("RGB", (5_000, 7_000), "white").save(stream, "PNG", compress_level=9)
    path = tmp_path / "blank"
    path.write_bytes(stream.getvalue())
    assert identify(str(path), max_bytes=10**6, max_pixels=10**8).height == 7_000


def test_every_limit_has_its_own_code(tmp_path):
    content = bomb()
    codes = [
        code_of(tmp_path, content, **limits).code
        for limits in ({"max_bytes": 100}, {"max_pixels": 10**7}, {"max_pixels": 10**8})
    ]
    assert codes == [
        EngineCode.MEDIA_TOO_BIG,
        EngineCode.MEDIA_TOO_MANY_PIXELS,
        EngineCode.MEDIA_TOO_DENSE,
    ]
