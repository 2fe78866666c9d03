"""What a checkpoint says of itself, beside its weights. It never says which backend trained it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.data.shape import InputShape
from harness.data.statistics import Statistics
from harness.records import Record
from harness.store import read_record, write_record

if TYPE_CHECKING:
    from harness.data.dataset import Dataset

CARD_FILE = "policy.json"
WEIGHTS_FILE = "model.safetensors"


class PolicyCard(Record):
    """`policy.json`: all that is needed to run the weights in `model.safetensors`."""

    model: str
    size: str
    shape: InputShape
    cameras: tuple[str, ...]
    """Cameras the policy was trained with; it must be shown all of them."""
    statistics: Statistics
    words: tuple[str, ...]
    """The tokenizer's vocabulary (`harness.data.tokens.WordTokenizer`)."""
    dataset_sha256: str
    """`Dataset.content_sha256` of the training set."""


def write_card(folder: Path, model: str, size: str, dataset: Dataset) -> None:
    """Writes `policy.json`. The weights go beside it as `model.safetensors`."""
    card = PolicyCard(
        model=model,
        size=size,
        shape=dataset.shape,
        cameras=dataset.cameras,
        statistics=dataset.statistics,
        words=dataset.tokenizer.words,
        dataset_sha256=dataset.content_sha256,
    )
    write_record(folder / CARD_FILE, card)


def read_card(folder: Path) -> PolicyCard:
    """Raises DamagedRecord when there is none, or it cannot be read."""
    return read_record(folder / CARD_FILE, PolicyCard)
