"""python -m tools.tiny_model [--to FOLDER] [--threads N]: make both models, with a report."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from tools.tiny_model.recipe import make_models

EMBEDDED = Path(__file__).resolve().parents[2] / "arkdev" / "backends" / "local" / "embedded"


def main() -> None:
    """Make `tiny-teacher` and `tiny`."""
    parser = argparse.ArgumentParser(prog="python -m tools.tiny_model", description=__doc__)
    parser.add_argument("--to", type=Path, default=EMBEDDED, help="folder of the two models")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    start = time.monotonic()
    make_models(arguments.to)
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
