from __future__ import annotations

import pytest

from harness.errors import BadInput, ExitCode, worst


def test_bad_input_names_file_key_value_expected_and_nearest() -> None:
    message = str(BadInput("suites/x.toml", "models.pi0.model", "pi00", "one of", ["pi0", "cogact"]))
    assert message == "suites/x.toml: models.pi0.model = 'pi00': expected one of (cogact, pi0); did you mean \"pi0\"?"


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], ExitCode.NOT_SHOWN),
        ([ExitCode.OK], ExitCode.OK),
        ([ExitCode.OK, ExitCode.NOT_SHOWN], ExitCode.NOT_SHOWN),
        ([ExitCode.FAILED, ExitCode.NOT_SHOWN], ExitCode.FAILED),
        ([ExitCode.FAILED, ExitCode.REGRESSED, ExitCode.NOT_SHOWN], ExitCode.REGRESSED),
    ],
)
def test_the_worst_code_wins(codes: list[ExitCode], expected: ExitCode) -> None:
    assert worst(codes) is expected
