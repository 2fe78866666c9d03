from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.compare.published import FOLDER, PublishedTable, compare_published, load_published
from harness.compare.verdict import Verdict
from harness.errors import DamagedRecord
from harness.report.published import spoken
from harness.statistics.strata import Stratum, two_sided_p

[TABLE] = load_published()


def test_dexbotics_table_is_complete_and_made_of_whole_episodes() -> None:
    assert {(row.model, row.backend) for row in TABLE.rows} == {
        (model, backend) for model in ("DB-CogACT", "DB-PI0", "DB-PI05", "DM0") for backend in ("deepspeed", "fsdp2")
    }
    assert all(len(row.percent) == 4 for row in TABLE.rows)
    assert TABLE.claim is not None and TABLE.claim.least_speedup == 1.2


def test_printed_averages_agree_with_their_rows() -> None:
    for row in TABLE.rows:
        assert row.average_percent == pytest.approx(sum(row.percent.values()) / 4, abs=0.06)


def test_one_of_sixteen_differences_is_more_than_chance() -> None:
    found = compare_published(TABLE, 0.95)
    assert len(found.differences) == 16
    [shown] = [d for d in found.differences if d.shown]
    assert (shown.model, shown.task_suite) == ("DB-PI05", "libero_10")
    assert (shown.reference_successes, shown.candidate_successes) == (424, 481)
    assert shown.difference.low is not None and shown.difference.low > 0.07
    alone = two_sided_p([Stratum(reference=424, reference_n=500, candidate=481, candidate_n=500)])
    assert shown.adjusted_p == pytest.approx(16 * alone)


def test_a_rate_that_is_no_count_is_refused(tmp_path: Path) -> None:
    table = json.loads((FOLDER / "dexbotic-fsdp2.json").read_text())
    table["rows"][0]["percent"]["libero_goal"] = 43.9 + 0.05
    (tmp_path / "bad.json").write_text(json.dumps(table))
    with pytest.raises(DamagedRecord, match=r"bad\.json.*whole number"):
        load_published(tmp_path)


def test_no_folder_is_no_tables(tmp_path: Path) -> None:
    assert load_published(tmp_path / "nowhere") == []


def test_a_model_without_a_partner_is_not_compared() -> None:
    alone = PublishedTable.model_validate({**TABLE.model_dump(), "rows": [TABLE.rows[0].model_dump()]})
    assert compare_published(alone, 0.95).differences == []


def test_three_averages_are_the_same_level_and_the_fourth_is_not() -> None:
    found = compare_published(TABLE, 0.95)
    averages = {average.model: average for average in found.averages}
    assert [name for name, average in averages.items() if average.equivalent] == ["DB-CogACT", "DB-PI0", "DM0"]
    assert [name for name, average in averages.items() if average.shown] == ["DB-PI05"]
    assert averages["DB-PI05"].difference.estimate == pytest.approx(0.027)
    assert averages["DB-PI05"].n == 2000
    for average in averages.values():
        assert average.difference.low is not None and average.difference.low < average.difference.estimate


def test_the_verdicts_say_checkpoints_and_hold_all_they_stand_on() -> None:
    judged = compare_published(TABLE, 0.95).judgements
    verdicts = [(j.subject.split()[0], j.metric, j.verdict) for j in judged]
    assert verdicts == [
        ("DB-PI05", "success_rate libero_10", Verdict.IMPROVED),
        ("DB-CogACT", "success_rate average", Verdict.PASS),
        ("DB-PI0", "success_rate average", Verdict.PASS),
        ("DB-PI05", "success_rate average", Verdict.IMPROVED),
        ("DM0", "success_rate average", Verdict.PASS),
    ]
    for j in judged:
        assert j.reason.startswith("these two checkpoints: ")
        assert None not in (j.value, j.reference, j.effect, j.smallest_detectable, j.false_alarm_rate)
        assert j.n in (500, 2000)


def test_a_narrower_margin_is_harder_to_show() -> None:
    strict = compare_published(TABLE, 0.95, margin=0.005)
    assert not any(average.equivalent for average in strict.averages)
    assert {j.verdict for j in strict.judgements if j.subject.startswith("DM0")} == {Verdict.INCONCLUSIVE}


def test_less_success_of_one_checkpoint_is_no_regression_of_a_backend() -> None:
    exchanged = {**TABLE.model_dump(), "reference_backend": "fsdp2", "candidate_backend": "deepspeed"}
    found = compare_published(PublishedTable.model_validate(exchanged), 0.95)
    assert {j.verdict for j in found.judgements if j.subject.startswith("DB-PI05")} == {Verdict.INCONCLUSIVE}


def test_the_page_says_it_in_words() -> None:
    text = spoken(compare_published(TABLE, 0.95))
    assert "424 → 481 of 500, far outside chance" in text
    assert "Averages equivalent within ±2 percentage points: DB-CogACT, DB-PI0, DM0." in text
    assert max(len(line) for line in text.splitlines()) <= 100
