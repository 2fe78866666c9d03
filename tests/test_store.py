from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadInput, DamagedRecord, DiskFull, HarnessError
from harness.records import Record
from harness.store import ResultFolder, Store, append_line, read_lines, read_record, write_atomically, write_record


class Note(Record):
    SCHEMA: ClassVar[int] = 2
    text: str


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    write_record(tmp_path / "a" / "note.json", Note(text="ä"))
    assert read_record(tmp_path / "a" / "note.json", Note) == Note(text="ä")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["note.json"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"text": "a"', "not a readable Note"),
        ('{"text": 3}', "text: Input should be a valid string"),
        ('{"text": "a", "more": 1}', "more: Extra inputs are not permitted"),
        ('{"schema_version": 3, "text": "a"}', "written by a newer harness"),
        ("", "not a readable Note"),
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "note.json"
    file.write_text(content)
    with pytest.raises(DamagedRecord) as caught:
        read_record(file, Note)
    assert str(file) in str(caught.value)
    assert says in str(caught.value)


def test_nan_never_reaches_a_record() -> None:
    class Number(Record):
        value: float

    with pytest.raises(ValueError, match="finite"):
        Number(value=float("nan"))


def test_a_full_disk_is_said_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "note.json"
    write_record(file, Note(text="old"))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull, match=r"note\.json: the disk is full"):
        write_record(file, Note(text="new"))
    assert read_record(file, Note).text == "old"
    assert list(tmp_path.iterdir()) == [file]


@given(st.integers(min_value=0, max_value=200))
def test_a_line_cut_off_by_a_kill_costs_only_itself(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    file = tmp_path_factory.mktemp("lines") / "notes.jsonl"
    for text in ("one", "two", "three"):
        append_line(file, Note(text=text).model_dump_json())
    whole = file.read_bytes()
    file.write_bytes(whole[: min(cut, len(whole))])
    kept = [note.text for note in read_lines(file, Note)]
    assert kept == ["one", "two", "three"][: len(kept)]
    append_line(file, Note(text="after").model_dump_json())
    assert [note.text for note in read_lines(file, Note)] == [*kept, "after"]


def test_one_harness_at_a_time_works_on_a_result(tmp_path: Path) -> None:
    result = ResultFolder(tmp_path / "suite" / "id")
    with result.locked(), pytest.raises(HarnessError, match="another harness"), ResultFolder(result.path).locked():
        pass
    with result.locked():
        pass


def test_a_result_is_found_by_path_id_and_suite(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in ("20260101-000000-aaaaaa", "20260102-000000-bbbbbb"):
        write_atomically(store.result("fsdp2", name).plan_file, "{}")
    newest = tmp_path / "fsdp2" / "20260102-000000-bbbbbb"
    for name in ("fsdp2", "fsdp2/20260102-000000-bbbbbb", "20260102-000000-bbbbbb", str(newest)):
        assert store.find(name).path == newest
    with pytest.raises(BadInput, match='did you mean "fsdp2"'):
        store.find("fsdp3")


def test_attempts_are_counted_not_spelled(tmp_path: Path) -> None:
    result = ResultFolder(tmp_path)
    for number in (1, 2, 10):
        (result.run("cell/timing-0") / f"attempt-{number}").mkdir(parents=True)
    assert [folder.name for folder in result.attempts("cell/timing-0")] == ["attempt-1", "attempt-2", "attempt-10"]
