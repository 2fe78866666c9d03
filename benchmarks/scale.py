"""The figure and the table of `docs/scale.md`: `python benchmarks/scale.py --output docs/figures`.

pi0, pi05, dm0 and cogact at published size on 1 to 1,024 ranks, in bf16 with 8 samples per rank and recomputed
activations: what `harness simulate --formula` says. `--engine pi0,dm0 --ranks 8,64,1024` runs FSDP2's real engine on
these first, which takes a minute or so each, and exits with 1 where the formula is off by a byte or a call; what has
been run is kept in `engine.json` beside the figure, and its points are filled there.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.simulate.prediction import Question, predict
from harness.simulate.records import Counted, Prediction

MODELS = ("pi0", "pi05", "dm0", "cogact")
FSDP2 = ("fsdp2", "fsdp2-root")
BACKENDS = ("zero1", "zero2", "zero3", *FSDP2)
RANKS = tuple(2**n for n in range(11))
SHOWN = (1, 8, 64, 1024)
"""Ranks in the table."""
BANDWIDTH = 50e9
LOOKS = {"zero1": ("#c14a00", "s"), "zero2": ("#866000", "D"), "zero3": ("#a4478a", "^"),
         "fsdp2": ("#0072b2", "o"), "fsdp2-root": ("#00795a", "v")}  # fmt: skip
"""Colour (Okabe and Ito 2008, darkened) and marker."""


def question(model: str, backends: tuple[str, ...], ranks: tuple[int, ...], formula: bool = True) -> Question:
    return Question(
        model=model,
        size="full",
        backends=list(backends),
        worlds=list(ranks),
        activation_checkpointing=True,
        bandwidth_bytes_per_second=BANDWIDTH,
        formula=formula,
    )


def found(asked: Question) -> list[Prediction]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [one for one in predict(asked) if isinstance(one, Prediction)]


def run_engines(models: list[str], ranks: tuple[int, ...], file: Path) -> list[str]:
    """Adds to `file`; returns where the formula is off."""
    wrong = []
    for model in models:
        for backend in FSDP2:
            for world in ranks:
                asked = question(model, (backend,), (world,), formula=False)
                (real,), (formula,) = found(asked), found(replace(asked, formula=True))
                if formula.counted.model_copy(update={"method": "engine"}) != real.counted:
                    wrong.append(f"{model} {backend} {world}")
                kept = json.loads(file.read_text()) if file.exists() else {}
                kept[f"{model} {backend} {world}"] = real.counted.model_dump(mode="json")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
                print(f"{model} {backend} {world}: by its engine", flush=True)
    return wrong


def off(predictions: list[Prediction], file: Path) -> list[str]:
    """Kept engines' steps that the formula does not give."""
    kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    formulas = {_name(one): one.counted.model_copy(update={"method": "engine"}) for one in predictions}
    return [name for name, counted in kept.items() if formulas.get(name) != Counted.model_validate(counted)]


def _name(one: Prediction) -> str:
    return f"{one.model} {one.backend} {one.ranks}"


def static_gigabytes(one: Prediction) -> float:
    shard = one.counted.shard
    return (shard.parameter_bytes + shard.gradient_bytes + shard.optimizer_bytes) / 1e9


def table(predictions: list[Prediction]) -> str:
    """Per model and backend: static GB and peak GB of a rank, then GB sent, on the ranks of `SHOWN`."""
    columns = [*(f"held, peak on {world}" for world in SHOWN), *(f"sent on {world}" for world in SHOWN[1:])]
    lines = [f"| model | backend | {' | '.join(columns)} |", "|---|---|" + "---:|" * len(columns)]
    for model in MODELS:
        for backend in BACKENDS:
            mine = {one.ranks: one for one in predictions if (one.model, one.backend) == (model, backend)}
            held = [f"{static_gigabytes(mine[w]):.3g}, {mine[w].peak_bytes / 1e9:.3g}" for w in SHOWN]
            sent = [f"{mine[w].wire_bytes / 1e9:.3g}" for w in SHOWN[1:]]
            lines.append(f"| {model} | {backend} | {' | '.join(held + sent)} |")
    return "\n".join(lines)


def draw(predictions: list[Prediction], engines: set[str], file: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.4))
    axes = figure.subplots(2, len(MODELS), sharex=True, sharey="row")
    for column, model in enumerate(MODELS):
        for row, read in enumerate((static_gigabytes, lambda one: one.wire_bytes / 1e9)):
            ax = axes[row][column]
            for backend, (colour, marker) in LOOKS.items():
                mine = [one for one in predictions if (one.model, one.backend) == (model, backend)]
                ax.plot([one.ranks for one in mine], [read(one) for one in mine], color=colour, marker=marker,
                        markersize=4.5, markerfacecolor="white", linewidth=1.1, label=backend)  # fmt: skip
                real = [one for one in mine if _name(one) in engines]
                ax.plot([one.ranks for one in real], [read(one) for one in real], marker, color=colour, markersize=4.5)
            ax.grid(True, color="#d9dbde", linewidth=0.6)
            ax.set_xscale("log", base=2)
            ax.set_xticks([1, 8, 64, 1024], ["1", "8", "64", "1024"])
        axes[0][column].set_title(model, fontsize=10)
        axes[0][column].set_yscale("log")
        axes[1][column].set_xlabel("ranks")
    axes[0][0].set_ylabel("GB held per rank")
    axes[1][0].set_ylabel("GB sent per rank and step")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="upper center", ncols=len(LOOKS), frameon=False)
    figure.subplots_adjust(left=0.07, right=0.99, top=0.88, bottom=0.1, wspace=0.06, hspace=0.1)
    file.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "scale", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(file, metadata={"Date": None})


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--output", type=Path, default=Path("docs/figures"))
    asked.add_argument("--engine", default="", metavar="MODEL,MODEL")
    asked.add_argument("--ranks", default="8,64,1024", metavar="N,N")
    given = asked.parse_args()
    kept = given.output / "engine.json"
    if given.engine:
        wrong = run_engines(given.engine.split(","), tuple(int(n) for n in given.ranks.split(",")), kept)
    else:
        predictions = [one for model in MODELS for one in found(question(model, BACKENDS, RANKS))]
        wrong = off(predictions, kept)
        draw(predictions, set(json.loads(kept.read_text())) if kept.exists() else set(), given.output / "scale.svg")
        print(table(predictions))
    for name in wrong:
        print(f"the formula is off: {name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
