"""A test that failed and then passed is printed as such."""

from pathlib import Path

import pytest
from tests import again

TESTS = """
import pytest
from tests import again

def test_at_once():
    pass

def test_with_a_second_try():
    again.record("the client was late", "line one\\nline two")

def test_that_fails_twice():
    again.record("the first try failed")
    assert False

def test_in_two_parts():
    again.record("the first part failed")
    again.record("the first part failed")
    again.record("the second part failed")

@pytest.fixture
def slow_to_end():
    yield
    again.record("the server did not stop")

def test_with_a_fixture(slow_to_end):
    pass
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_every_second_try_is_printed_with_its_log(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(again.__file__).parents[1]))
    pytester.makepyfile(TESTS)
    found = pytester.runpytest_subprocess("-p", "tests.again", "-n", workers)
    found.assert_outcomes(passed=4, failed=1)
    text = found.stdout.str()
    assert text.count("failed, then passed: ") == 5
    assert text.count("failed again: ") == 1
    found.stdout.fnmatch_lines(["*tried again*"])
    found.stdout.fnmatch_lines_random(
        [
            "failed, then passed: *::test_with_a_second_try: the client was late",
            "    line one",
            "    line two",
            "failed, then passed: *::test_in_two_parts: the first part failed",
            "failed, then passed: *::test_in_two_parts: the second part failed",
            "failed, then passed: *::test_with_a_fixture: the server did not stop",
            "failed again: *::test_that_fails_twice: the first try failed",
        ]
    )


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_recorded_after_the_last_test_is_printed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(again.__file__).parents[1]))
    pytester.makepyfile(
        """
        import pytest
        from tests import again

        def test_one(request):
            request.config.pluginmanager.register(Late())

        class Late:
            @pytest.hookimpl(tryfirst=True)
            def pytest_sessionfinish(self):
                again.record("a server started at the second try")
        """
    )
    found = pytester.runpytest_subprocess("-p", "tests.again", "-n", workers)
    found.stdout.fnmatch_lines(["beside the tests: a server started at the second try"])


def test_nothing_is_printed_where_nothing_was_tried_again(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(again.__file__).parents[1]))
    pytester.makepyfile("def test_one(): pass")
    assert "tried again" not in pytester.runpytest_subprocess("-p", "tests.again").stdout.str()
