"""A comparison for machines that run jobs: JUnit XML, GitHub annotations, and the job summary."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

from harness.compare.comparison import Comparison
from harness.compare.verdict import Judgement, Verdict
from harness.errors import ExitCode
from harness.report.verdicts import GOOD, counts, judgement_line, outcome

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""
_ANNOTATED = 10
"""GitHub shows at most so many annotations of a step."""


def junit(comparison: Comparison) -> str:
    """One test case per verdict, and a first one that fails unless the exit code is 0.

    REGRESSED is a failure, FAILED an error, everything not shown is skipped: viewers that paint skipped cases green
    still have the first case.
    """
    cases = [_whole(comparison), *(_case(comparison, judgement) for judgement in comparison.judgements)]
    totals = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
    }
    name = _clean(f"{comparison.suite} on {comparison.hardware_key}")
    root = Xml.Element("testsuites", {"name": "harness", **totals})
    suite = Xml.SubElement(root, "testsuite", {"name": name, **totals, "time": "0"})
    properties = Xml.SubElement(suite, "properties")
    for key, value in (("result", comparison.result), ("exit_code", str(int(comparison.exit_code)))):
        Xml.SubElement(properties, "property", {"name": key, "value": _clean(value)})
    suite.extend(cases)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _whole(comparison: Comparison) -> Xml.Element:
    case = Xml.Element("testcase", {"classname": _clean(comparison.suite), "name": "every verdict", "time": "0"})
    if comparison.exit_code is not ExitCode.OK:
        text = f"{outcome(comparison)} {counts(comparison.judgements) or 'nothing was measured'}"
        Xml.SubElement(case, "failure", {"type": comparison.exit_code.name, "message": _clean(text)})
    return case


def _case(comparison: Comparison, judgement: Judgement) -> Xml.Element:
    kind = f"{comparison.suite}.{judgement.question}"
    name = f"{judgement.subject} {judgement.metric}"
    case = Xml.Element("testcase", {"classname": _clean(kind), "name": _clean(name), "time": "0"})
    line = _clean(judgement_line(judgement))
    found = {"type": str(judgement.verdict), "message": line}
    if judgement.verdict is Verdict.REGRESSED:
        Xml.SubElement(case, "failure", found).text = line
    elif judgement.verdict is Verdict.FAILED:
        Xml.SubElement(case, "error", found).text = line
    elif judgement.verdict not in GOOD:
        Xml.SubElement(case, "skipped", {"message": line})
    else:
        Xml.SubElement(case, "system-out").text = line
    return case


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def workflow_commands(comparison: Comparison) -> list[str]:
    """GitHub's workflow commands: an error per regression and failure, then a warning per verdict not shown."""
    bad = [j for j in comparison.judgements if j.verdict in (Verdict.REGRESSED, Verdict.FAILED)]
    unsure = [j for j in comparison.judgements if j.verdict not in (*GOOD, Verdict.REGRESSED, Verdict.FAILED)]
    lines = [_annotation("error", judgement) for judgement in bad]
    lines += [_annotation("warning", judgement) for judgement in unsure]
    if not comparison.judgements:
        lines.append("::error title=NOTHING MEASURED::no verdict was made, so nothing is shown")
    if len(lines) > _ANNOTATED:
        more = len(lines) - _ANNOTATED + 1
        lines = [*lines[: _ANNOTATED - 1], f"::warning title=MORE::{more} more verdicts are in the report"]
    return lines


def _annotation(level: str, judgement: Judgement) -> str:
    title = f"{judgement.verdict} {judgement.subject} {judgement.metric}"
    escaped = _escape(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={escaped}::{_escape(judgement_line(judgement))}"


def _escape(text: str) -> str:
    """As GitHub asks for the data of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def summary(comparison: Comparison) -> str:
    """Markdown for the job's page: the exit code, what is not good, and where the rest is. Ends with a newline."""
    marks = {ExitCode.OK: "✅", ExitCode.REGRESSED: "❌", ExitCode.FAILED: "❌", ExitCode.NOT_SHOWN: "⚠️"}
    bad = [judgement for judgement in comparison.judgements if judgement.verdict not in GOOD]
    bad.sort(key=lambda judgement: judgement.verdict.exit_code is ExitCode.NOT_SHOWN)
    parts = [
        f"## {marks[comparison.exit_code]} {comparison.suite} on {comparison.hardware_key}",
        f"{outcome(comparison)} {counts(comparison.judgements) or 'Nothing was measured.'}",
        "\n".join(f"- {judgement_line(judgement)}" for judgement in bad),
        f"Result `{comparison.result}`; the whole report: `harness report {comparison.result}`.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
