"""What names a model's numbers: its weights and whatever else decides the bits it computes."""

from __future__ import annotations

import json

import torch
import transformers
from blake3 import blake3
from transformers import PreTrainedModel

# Says where the folder lay and who wrote it, not what is computed.
_SAYS_NOTHING = ("_name_or_path", "transformers_version")


def fingerprint(model: PreTrainedModel, arithmetic: tuple[bool, ...]) -> bytes:
    """Return a digest of all weights, the configuration and the machine's kind of arithmetic.

    `arithmetic` are the switches that change the order in which numbers are added. Read from
    memory, so that neither a renamed folder nor a changed file can pass for another.
    """
    config = {k: v for k, v in model.config.to_dict().items() if k not in _SAYS_NOTHING}
    device = next(model.parameters()).device
    where = (
        torch.backends.cpu.get_cpu_capability()
        if device.type == "cpu"
        else torch.cuda.get_device_name(device)
    )
    digest = blake3(max_threads=blake3.AUTO)
    about = [torch.__version__, transformers.__version__, where, arithmetic, config]
    digest.update(json.dumps(about, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        data = tensor.detach().to("cpu").contiguous().reshape(-1)
        if data.numel():
            digest.update(data.view(torch.uint8).numpy())
    return digest.digest()
