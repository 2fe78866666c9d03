import pytest

from harness.errors import DamagedRecord
from harness.train.journal import Journal, checkpoint_folder, phase_file, read_rows, steps_file
from harness.train.records import StepRow
from harness.train.watch import StepsFollower


def row(step: int, seconds: float = 1.0) -> StepRow:
    return StepRow(
        step=step,
        step_seconds=seconds,
        data_seconds=0.0,
        loss=1 / 3,
        gradient_norm=None,
        learning_rate=1e-3,
        samples=8,
        tokens=80,
    )


def write(attempt, rank, *steps, seconds=1.0):
    journal = Journal(attempt, rank)
    for step in steps:
        journal.add(row(step, seconds))
    return journal


def test_rows_survive_a_cut_off_line(tmp_path):
    write(tmp_path, 0, 0, 1)
    with steps_file(tmp_path, 0).open("ab") as file:
        file.write(b'{"step": 2, "step_sec')
    assert read_rows(steps_file(tmp_path, 0)) == [row(0), row(1)]
    assert read_rows(steps_file(tmp_path, 1)) == []


def test_carry_over_takes_rows_before_the_checkpoint_and_marks_them(tmp_path):
    old, new = tmp_path / "attempt-1", tmp_path / "attempt-2"
    old.mkdir(), new.mkdir()
    write(old, 0, 0, 1, 2, 3, 4)
    assert Journal(new, 0).carry_over(checkpoint_folder(old, 3)) == 3
    found = read_rows(steps_file(new, 0))
    assert [(r.step, r.resumed, r.loss) for r in found] == [(s, True, 1 / 3) for s in range(3)]


def test_missing_rows_are_an_error(tmp_path):
    old, new = tmp_path / "attempt-1", tmp_path / "attempt-2"
    old.mkdir(), new.mkdir()
    write(old, 0, 0, 2)
    with pytest.raises(DamagedRecord, match="steps 0 to 2"):
        Journal(new, 0).carry_over(checkpoint_folder(old, 3))


def test_follower_hands_on_each_step_once_when_all_have_it(tmp_path):
    follower, seen = StepsFollower(tmp_path, 2), []
    assert not follower.poll(seen.append) or not seen
    first = write(tmp_path, 0, 0, 1, seconds=1.0)
    assert follower.poll(seen.append)
    assert seen == []
    second = write(tmp_path, 1, 0, seconds=2.0)
    assert follower.poll(seen.append)
    assert [(r.step, r.step_seconds) for r in seen] == [(0, 2.0)]
    assert not follower.poll(seen.append)
    second.add(row(1))
    first.add(row(2))
    follower.poll(seen.append)
    assert [r.step for r in seen] == [0, 1]
    assert follower.steps == 2


def test_change_of_phase_is_a_sign_of_life(tmp_path):
    follower, journal = StepsFollower(tmp_path, 1), write(tmp_path, 0)
    follower.poll(lambda _: None)
    assert follower.phase(0) == "starting"
    journal.phase("building the model")
    assert follower.poll(lambda _: None)
    assert follower.phase(0) == "building the model"
    assert not follower.poll(lambda _: None)
    journal.close()
    assert not phase_file(tmp_path, 0).exists()
