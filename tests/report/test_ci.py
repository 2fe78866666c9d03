from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from comparison_records import a_failed_run, a_plan, some_results
from junitparser import Error, Failure, JUnitXml, Skipped

from harness.compare.comparison import Comparison, compare
from harness.compare.results import Results
from harness.compare.verdict import Judgement, Verdict
from harness.errors import ExitCode, worst
from harness.report.ci import junit, summary, workflow_commands
from harness.train.records import Outcome

PLAN = a_plan()


def a_comparison(*verdicts: Verdict, reason: str = "because") -> Comparison:
    """A comparison with just these verdicts."""
    judgements = [
        Judgement(question="baseline", subject=f"pi0-{n}", metric="step_seconds", verdict=verdict, reason=reason)
        for n, verdict in enumerate(verdicts)
    ]
    whole = compare(PLAN, some_results(PLAN), None, [])
    code = worst(judgement.verdict.exit_code for judgement in judgements)
    return whole.model_copy(update={"judgements": judgements, "exit_code": code})


@pytest.mark.parametrize("verdict", list(Verdict))
def test_each_verdict_has_its_place_in_junit(verdict: Verdict, tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    file.write_text(junit(a_comparison(verdict)))
    [suite] = JUnitXml.fromfile(str(file))
    whole, case = suite
    found = {type(result) for result in case.result}
    expected = {Verdict.REGRESSED: {Failure}, Verdict.FAILED: {Error}, Verdict.PASS: set(), Verdict.IMPROVED: set()}
    assert found == expected.get(verdict, {Skipped})
    assert bool(whole.result) == (verdict not in (Verdict.PASS, Verdict.IMPROVED))
    assert (suite.tests, suite.failures + suite.errors + suite.skipped) == (2, len(whole.result) + len(case.result))


def test_nothing_measured_is_never_green(tmp_path: Path) -> None:
    nothing = a_comparison()
    assert nothing.exit_code is ExitCode.NOT_SHOWN
    file = tmp_path / "junit.xml"
    file.write_text(junit(nothing))
    [suite] = JUnitXml.fromfile(str(file))
    assert (suite.tests, suite.failures) == (1, 1)
    assert workflow_commands(nothing) == ["::error title=NOTHING MEASURED::no verdict was made, so nothing is shown"]
    assert "Nothing was measured" in summary(nothing)


def test_a_whole_result_is_valid_against_the_schema_of_junit() -> None:
    """Elements, attributes and order as the JUnit schema of Jenkins' xUnit plugin asks for them."""
    results = some_results(PLAN)
    runs = [a_failed_run("ddp", Outcome.OOM, 1) if r.run.key == "pi0-ddp/timing-1" else r for r in results.runs]
    comparison = compare(PLAN, Results("r", "", runs, results.steps, results.arms, results.episodes), None, [])
    root = Xml.fromstring(junit(comparison).encode())
    assert root.tag == "testsuites"
    for suite in root:
        assert [child.tag for child in suite][:1] == ["properties"]
        assert {child.tag for child in list(suite)[1:]} == {"testcase"}
        assert {"name", "tests", "failures", "errors", "skipped", "time"} <= set(suite.attrib)
        for case in suite.iter("testcase"):
            assert {"name", "classname", "time"} == set(case.attrib)
            assert {child.tag for child in case} <= {"failure", "error", "skipped", "system-out"}
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(names) == len(set(names)) == 1 + len(comparison.judgements)
    assert int(root.get("errors") or 0) >= 1


def test_what_xml_cannot_hold_does_not_break_it() -> None:
    text = junit(a_comparison(Verdict.FAILED, reason='<tag> & "quote" \x1b[31m \x00 𝄞'))
    [case] = [c for c in Xml.fromstring(text.encode()).iter("testcase") if c.find("error") is not None]
    assert '<tag> & "quote" \N{REPLACEMENT CHARACTER}[31m' in str(case.find("error").get("message"))  # type: ignore[union-attr]


COMMAND = re.compile(r"^::(error|warning) title=[^,:\r\n]*::[^\r\n]+$")


def test_annotations_are_github_commands_worst_first() -> None:
    lines = workflow_commands(
        a_comparison(Verdict.INCONCLUSIVE, Verdict.REGRESSED, Verdict.PASS, reason="50% slower:\nyes, so")
    )
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning"]
    assert all(COMMAND.match(line) for line in lines)
    assert "50%25 slower:%0Ayes, so" in lines[0]


def test_many_annotations_are_counted_instead() -> None:
    lines = workflow_commands(a_comparison(*[Verdict.REGRESSED] * 30))
    assert len(lines) == 10
    assert "21 more verdicts" in lines[-1]


def test_the_summary_names_what_is_not_good_and_nothing_else() -> None:
    text = summary(a_comparison(Verdict.INCONCLUSIVE, Verdict.REGRESSED, Verdict.PASS))
    assert text.startswith("## ❌ fsdp2 on")
    assert "Exit code 10" in text
    assert text.index("REGRESSED` pi0-1") < text.index("INCONCLUSIVE` pi0-0")
    assert "pi0-2" not in text
