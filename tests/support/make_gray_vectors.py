"""Write tests/vectors/gray.json: samples, how they become gray, and the gray that pydicom makes.

    python tests/support/make_gray_vectors.py

pydicom's values lie between the ends of its own output range; here they are spread over 0 to 255
and rounded, and nothing else is added. Read by the tests of `engine/perception/voi.py` and by
those of the page's `voi.ts`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset
from pydicom.pixels.processing import apply_modality_lut, apply_voi, apply_windowing

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.dicoms import gray, table  # noqa: E402

CT = np.array(
    [[-2000, -1024, -161, -160, -159], [-129, -128, 40, 65, 193], [239, 240, 241, 3071, 32767]]
)
CT12 = np.array(
    [[0, 864, 865, 895, 896], [1064, 1089, 1217, 1263, 1264], [1265, 2000, 3000, 4094, 4095]]
)

CASES: dict[str, tuple[np.ndarray, dict]] = {
    "LINEAR, W 400 C 40: 20, 144 and 226": (
        CT.astype(np.int16),
        {"WindowCenter": 40, "WindowWidth": 400},
    ),
    "LINEAR after rescale": (
        CT12.astype(np.uint16),
        {"WindowCenter": 40, "WindowWidth": 400, "RescaleSlope": 1, "RescaleIntercept": -1024},
    ),
    "LINEAR of width 1 is a threshold": (
        CT.astype(np.int16),
        {"WindowCenter": 40.5, "WindowWidth": 1},
    ),
    "LINEAR_EXACT": (
        CT.astype(np.int16),
        {"WindowCenter": 40, "WindowWidth": 400, "VOILUTFunction": "LINEAR_EXACT"},
    ),
    "SIGMOID": (
        CT.astype(np.int16),
        {"WindowCenter": 40, "WindowWidth": 400, "VOILUTFunction": "SIGMOID"},
    ),
    "MONOCHROME1 is inverted after the window": (
        CT.astype(np.int16),
        {"WindowCenter": 40, "WindowWidth": 400, "PhotometricInterpretation": "MONOCHROME1"},
    ),
    "a broken slope": (
        CT12.astype(np.uint16),
        {
            "WindowCenter": 1.5,
            "WindowWidth": 4.5,
            "RescaleSlope": 0.00244,
            "RescaleIntercept": -2.5,
        },
    ),
    "8-bit samples": (
        np.arange(0, 255, 17, dtype=np.uint8).reshape(3, 5),
        {"WindowCenter": 128, "WindowWidth": 100},
    ),
    "a table comes before the window": (
        CT12.astype(np.uint16),
        {
            "WindowCenter": 40,
            "WindowWidth": 400,
            "VOILUTSequence": table(864, 12, [int(4095 * (n / 399) ** 0.5) for n in range(400)]),
        },
    ),
    "a table with a negative first value, inverted": (
        CT.astype(np.int16),
        {
            "VOILUTSequence": table(-160, 10, [n * 1023 // 399 for n in range(400)]),
            "PhotometricInterpretation": "MONOCHROME1",
        },
    ),
}


def by_pydicom(samples: np.ndarray, dataset: Dataset) -> np.ndarray:
    values = apply_modality_lut(samples, dataset)
    if "VOILUTSequence" in dataset:
        looked_up = apply_voi(values.astype(np.int64), dataset)
        parts = looked_up / ((1 << dataset.VOILUTSequence[0].LUTDescriptor[2]) - 1)
    else:
        shown = apply_windowing(values, dataset)
        slope, intercept = (
            float(dataset.get("RescaleSlope", 1)),
            float(dataset.get("RescaleIntercept", 0)),
        )
        bits, is_signed = dataset.BitsStored, dataset.PixelRepresentation
        low = -(1 << (bits - 1)) if is_signed else 0
        ends = [end * slope + intercept for end in (low, low + (1 << bits) - 1)]
        parts = (shown - ends[0]) / (ends[1] - ends[0])
    shades = np.floor(parts * 255 + 0.5).astype(int)
    return 255 - shades if dataset.PhotometricInterpretation == "MONOCHROME1" else shades


def case(name: str, samples: np.ndarray, tags: dict) -> dict:
    dataset = gray(samples, **tags)
    lut = None
    for item in tags.get("VOILUTSequence", ()):
        _, first, bits = item.LUTDescriptor
        lut = {"first": first, "bits": bits, "entries": list(item.LUTData)}
    windows = []
    if "WindowCenter" in tags:
        windows = [{"center": tags["WindowCenter"], "width": tags["WindowWidth"]}]
    return {
        "name": name,
        "gray": {
            "slope": tags.get("RescaleSlope", 1),
            "intercept": tags.get("RescaleIntercept", 0),
            "function": tags.get("VOILUTFunction", "LINEAR"),
            "invert": tags.get("PhotometricInterpretation") == "MONOCHROME1",
            "windows": windows,
            "lut": lut,
        },
        "sample": samples.dtype.name,
        "samples": samples.ravel().tolist(),
        "shades": by_pydicom(samples, dataset).ravel().tolist(),
    }


def main() -> None:
    cases = [case(name, samples, tags) for name, (samples, tags) in CASES.items()]
    lines = ",\n".join(json.dumps(one) for one in cases)
    (ROOT / "tests/vectors/gray.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
