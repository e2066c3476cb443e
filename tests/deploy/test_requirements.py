"""The set-up for the tests names what it cannot install, and never skips it silently."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "deploy" / "test-requirements.sh"


def run(path: Path) -> subprocess.CompletedProcess[str]:
    shell = shutil.which("sh")
    assert shell is not None
    env = {"PATH": str(path), "CHROME_PATH": ""}
    return subprocess.run([shell, SCRIPT], env=env, capture_output=True, text=True)


def program(path: Path, body: str) -> None:
    path.write_text(f"#!{shutil.which('sh')}\n{body}\n")
    path.chmod(0o755)


def test_what_is_missing_is_named_in_one_line_with_a_status(tmp_path):
    program(tmp_path / "uname", "echo Linux")
    done = run(tmp_path)
    assert done.returncode != 0
    (line,) = done.stderr.strip().splitlines()
    for package in ("redis-server", "chromium", "fonts-noto-cjk", "dicom3tools", "dcmtk"):
        assert package in line


def test_nothing_is_done_when_all_is_there(tmp_path):
    for name in ("redis-server", "chromium", "dciodvfy", "dsrdump"):
        (tmp_path / name).symlink_to("/bin/true")
    program(tmp_path / "uname", "echo Linux")
    program(tmp_path / "fc-list", "echo /fonts/noto.ttc")
    done = run(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
