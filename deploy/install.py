"""Install Consilium with all extras into the environment of the Python that runs this.

Only the standard library and pip are there when it runs. The one question it answers: where
torch comes from. A plain `torch` on Linux is a CUDA build of several gigabytes, so without an
NVIDIA GPU the CPU build is taken: from the configured index when that has one, else from
PyTorch's own.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def torch_requirement() -> str:
    """Read torch's bound from pyproject.toml, where it stands once."""
    found = re.search(r'"(torch[^"]*)"', (ROOT / "pyproject.toml").read_text())
    assert found, "pyproject.toml names torch"
    return found[1]


def is_cuda_build(requirement: str) -> bool:
    """Whether the configured index would give a build that brings CUDA with it."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        subprocess.run(
            [*PIP, "install", "--quiet", "--dry-run", "--no-deps", "--report", report, requirement],
            check=True,
        )
        installs = json.loads(report.read_text())["install"]
    if not installs:
        return False
    needs = installs[0]["metadata"].get("requires_dist", [])
    return any(need.startswith(("nvidia-", "cuda-", "triton")) for need in needs)


def torch_source(index: str) -> list[str]:
    """Return the pip options that lead to the right build of torch."""
    if platform.system() != "Linux" or shutil.which("nvidia-smi"):
        return []
    return ["--index-url", index] if is_cuda_build(torch_requirement()) else []


def main() -> None:
    """Install torch first, then the rest, which takes it as it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-index", required=True)
    arguments = parser.parse_args()
    # pip's own bars where somebody watches; elsewhere one line a step.
    install = [*PIP, "install", *([] if sys.stdout.isatty() else ["--quiet"])]
    torch = [*torch_source(arguments.torch_index), torch_requirement()]
    steps = {
        # `--group`, used for the tests' tools, came with pip 25.1.
        "pip": ["--quiet", "--upgrade", "pip>=25.1"],
        "torch (about 200 MB)": torch,
        "everything else (about 3 GB on disk with torch)": [
            "--editable",
            f"{ROOT}[server,engine,redis,export]",
        ],
    }
    for number, (name, wanted) in enumerate(steps.items(), start=1):
        print(f"Installing {number}/{len(steps)}: {name} …", flush=True)
        subprocess.run([*install, *wanted], check=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"install failed: {' '.join(map(str, error.cmd))}")
