"""Success in LIBERO: every arm in every task, and pairs of checkpoints scene by scene."""

from __future__ import annotations

from harness.compare.comparison import Comparison
from harness.compare.results import Results, unique
from harness.report.figures import pair
from harness.report.plots.theme import Drawing, Margins, Theme, beside, legend, paper
from harness.task_suites import EVALUATION_SUITES

HATCHES = ("", "//", "\\\\", "--")
LIGHT_CELL = 0.55
"""Rates above this have black figures, below it white ones."""


def per_task(results: Results, theme: Theme) -> Drawing | None:
    """Heat map of success, arms by tasks; errors and uncovered episodes are in no rate. None without episodes."""
    valid = [e for e in results.episodes if e.outcome in ("success", "failure")]
    tasks = sorted(
        {(e.key.task_suite, e.key.task) for e in valid}, key=lambda task: (EVALUATION_SUITES.index(task[0]), task[1])
    )
    arms = unique(e.arm for e in results.episodes)
    if not tasks:
        return None
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    figure, [ax] = paper(
        theme, 0.9 + 0.42 * len(arms), Margins(left=beside(arms), bottom=0.6 if len(tasks) <= 8 else 0.75)
    )
    colours = colormaps["cividis"]
    counts: dict[tuple[str, str, int], list[bool]] = {}
    for e in valid:
        counts.setdefault((e.arm, e.key.task_suite, e.key.task), []).append(e.outcome == "success")
    for row, arm in enumerate(arms):
        for column, (task_suite, task) in enumerate(tasks):
            outcomes = counts.get((arm, task_suite, task))
            if outcomes is None:
                box = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch="xx", ec=theme.grid, lw=0)
                ax.add_patch(box)
                continue
            rate = sum(outcomes) / len(outcomes)
            ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fc=colours(rate), ec=theme.paper, lw=1.5))
            text = f"{sum(outcomes)}/{len(outcomes)}" if len(tasks) <= 16 else f"{100 * rate:.0f}"
            ink = "#000000" if rate > LIGHT_CELL else "#ffffff"
            ax.annotate(text, (column, row), ha="center", va="center", fontsize=8, color=ink)
    ax.set_xlim(-0.5, len(tasks) - 0.5)
    ax.set_ylim(len(arms) - 0.5, -0.5)
    names = [f"{suite.removeprefix('libero_')}\ntask {task}" for suite, task in tasks]
    ax.set_xticks(range(len(tasks)), names, rotation=90 if len(tasks) > 8 else 0, fontsize=9 if len(tasks) <= 16 else 7)
    ax.set_yticks(range(len(arms)), arms)
    ax.grid(False)
    words = "; ".join(_words(arm, counts) for arm in arms)
    return Drawing("success", "Success per task", f"Successes of valid episodes by arm: {words}.", figure)


def _words(arm: str, counts: dict[tuple[str, str, int], list[bool]]) -> str:
    mine = [outcome for (name, _, _), outcomes in counts.items() if name == arm for outcome in outcomes]
    return f"{arm} {sum(mine)} of {len(mine)}"


def paired(comparison: Comparison, theme: Theme) -> Drawing | None:
    """What became of each scene under two checkpoints. None where no two share a scene."""
    found = [p for p in comparison.success_pairs if p.pairs.n]
    if not found:
        return None
    names = [_scope(p.candidate, p.reference, p.task_suite) for p in found]
    figure, [ax] = paper(theme, 1.1 + 0.45 * len(found), Margins(left=beside(names), top=0.4))
    kinds = (
        ("both succeed", 2, [p.pairs.both for p in found]),
        ("only the reference", 1, [p.pairs.only_reference for p in found]),
        ("only the other", 0, [p.pairs.only_candidate for p in found]),
        ("neither", 5, [p.pairs.neither for p in found]),
    )
    left = [0.0] * len(found)
    totals = [p.pairs.n for p in found]
    for place, (name, colour, counts) in enumerate(kinds):
        shares = [100 * count / total for count, total in zip(counts, totals, strict=True)]
        ax.barh(
            range(len(found)), shares, left=left, height=0.62, label=name, color=theme.series[colour],
            hatch=HATCHES[place], edgecolor=theme.paper, linewidth=0.8,
        )  # fmt: skip
        for row, (share, count) in enumerate(zip(shares, counts, strict=True)):
            if count:
                ax.annotate(
                    str(count), (left[row] + share / 2, row), ha="center", va="center", fontsize=9, color=theme.ink,
                    bbox={"boxstyle": "round,pad=0.15", "fc": theme.paper, "ec": "none"},
                )  # fmt: skip
        left = [a + b for a, b in zip(left, shares, strict=True)]
    ax.set_yticks(range(len(found)), names)
    ax.set_ylim(len(found) - 0.4, -0.6)
    ax.set_xlim(0, 100)
    ax.grid(False, axis="y")
    ax.set_xlabel("% of scenes run by both")
    legend(ax, theme, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    words = "; ".join(
        f"{_scope(p.candidate, p.reference, p.task_suite)}: both {p.pairs.both}, only the reference "
        f"{p.pairs.only_reference}, only the other {p.pairs.only_candidate}, neither {p.pairs.neither}"
        for p in found
    )
    return Drawing("paired", "Scene by scene", f"Paired outcomes. {words}.", figure)


def _scope(candidate: str, reference: str, task_suite: str) -> str:
    return f"{pair(candidate, reference)}" if task_suite == "all" else task_suite.removeprefix("libero_")
