"""`harness models`, `harness export`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.backends.footprint import PRECISIONS, RANKS, STRATEGIES, Precision
from harness.errors import BadInput
from harness.models import MODELS
from harness.models.facts import ModelFacts, facts
from harness.policies.card import CARD_FILE, TOKENIZER_FOLDER, read_card


def show_models(names: list[str], size: str, precision: str, as_json: bool) -> None:
    """The built-in models, or those named, `module:function` ones too."""
    chosen = chosen_precision(precision)
    found = [facts(name, size, chosen) for name in names or MODELS]
    if as_json:
        print(json.dumps([one.model_dump() for one in found], indent=1))
        return
    console = Console()
    console.print(f"Size {size}: millions of parameters, and TFLOP of forward and backward per sample")
    console.print(_sizes(found))
    console.print(f"\nGB per rank of parameters, gradients and AdamW's state ({chosen}); no activations")
    console.print(_memory(found))


def chosen_precision(text: str) -> Precision:
    """Raises BadInput."""
    for known in PRECISIONS:
        if text == known:
            return known
    raise BadInput("--precision", None, text, "a precision", PRECISIONS)


def _sizes(found: list[ModelFacts]) -> Table:
    table = Table(box=None)  # all columns fit into 80 characters
    table.add_column("model")
    parts = list(dict.fromkeys(part for one in found for part in one.parts))
    for column in ("total", "frozen", *parts, "tokens", "TFLOP"):
        table.add_column(column, justify="right")
    for one in found:
        counts = [one.parameters, one.frozen_parameters, *(one.parts.get(part, 0) for part in parts)]
        flops = f"{one.training_flops / 1e12:.4g}"
        table.add_row(one.name, *(f"{count / 1e6:.1f}" for count in counts), str(one.tokens_per_sample), flops)
    return table


def _memory(found: list[ModelFacts]) -> Table:
    table = Table(box=None)
    for column in ("model", "backend"):
        table.add_column(column)
    for ranks in RANKS:
        table.add_column(f"{ranks} rank{'s' if ranks > 1 else ''}", justify="right")
    for one in found:
        for strategy in STRATEGIES:
            row = [memory for memory in one.static_memory if memory.backend == strategy]
            table.add_row(one.name, strategy, *(f"{memory.total_bytes / 1e9:.3g}" for memory in row))
    return table


def export(checkpoint: Path, format_name: str, folder: Path, shard_gb: float, as_json: bool) -> None:
    """Writes a policy's weights in another project's names, with its card and tokenizer beside them."""

    from harness.models import build_on_meta
    from harness.models.formats.rules import FORMATS
    from harness.models.formats.transfer import convert

    if format_name not in FORMATS:
        raise BadInput("--format", None, format_name, "a checkpoint format", FORMATS)
    if folder.is_dir() and any(folder.iterdir()):
        raise BadInput("--output", None, str(folder), "a new or empty folder")
    card = read_card(checkpoint)
    files = convert(build_on_meta(card.model, card.size), checkpoint, FORMATS[format_name], folder, int(shard_gb * 1e9))
    shutil.copy2(checkpoint / CARD_FILE, folder / CARD_FILE)
    if (checkpoint / TOKENIZER_FOLDER).is_dir():
        shutil.copytree(checkpoint / TOKENIZER_FOLDER, folder / TOKENIZER_FOLDER)
    if as_json:
        print(json.dumps({"format": format_name, "files": [str(file) for file in files]}, indent=1))
        return
    size = sum(file.stat().st_size for file in files)
    Console().print(
        f"{folder}: {len(files)} file(s), {size / 1e9:.3g} GB, in the names of {format_name}", highlight=False
    )
