"""What a checkpoint says of itself, beside its weights. It never says which backend trained it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.data.shape import InputShape
from harness.data.statistics import Statistics
from harness.data.tokens import FileTokenizer, Tokenizer, WordTokenizer
from harness.records import Record
from harness.store import read_record, write_record

if TYPE_CHECKING:
    from harness.data.dataset import Dataset

CARD_FILE = "policy.json"
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FOLDER = "tokenizer"


class PolicyCard(Record):
    """`policy.json`: all that is needed to run the weights in `model.safetensors`."""

    model: str
    size: str
    shape: InputShape
    cameras: tuple[str, ...]
    """Cameras the policy was trained with; it must be shown all of them."""
    statistics: Statistics
    words: tuple[str, ...] | None
    """Vocabulary of a `harness.data.tokens.WordTokenizer`; None: the tokenizer's own files are in `tokenizer/`."""
    dataset_sha256: str
    """`Dataset.content_sha256` of the training set."""


def write_card(folder: Path, model: str, size: str, dataset: Dataset) -> None:
    """Writes `policy.json`, and the tokenizer's files where it has any. The weights go beside it."""
    words = dataset.tokenizer.words if isinstance(dataset.tokenizer, WordTokenizer) else None
    if isinstance(dataset.tokenizer, FileTokenizer):
        dataset.tokenizer.save(folder / TOKENIZER_FOLDER)
    card = PolicyCard(
        model=model,
        size=size,
        shape=dataset.shape,
        cameras=dataset.cameras,
        statistics=dataset.statistics,
        words=words,
        dataset_sha256=dataset.content_sha256,
    )
    write_record(folder / CARD_FILE, card)


def read_card(folder: Path) -> PolicyCard:
    """Raises DamagedRecord when there is none, or it cannot be read."""
    return read_record(folder / CARD_FILE, PolicyCard)


def read_tokenizer(folder: Path, card: PolicyCard) -> Tokenizer:
    """The tokenizer a policy was trained with."""
    if card.words is not None:
        return WordTokenizer(card.words, card.shape.text_slots)
    return FileTokenizer(folder / TOKENIZER_FOLDER, card.shape.text_slots, card.shape.prompt_template)
