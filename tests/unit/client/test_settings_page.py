"""What is written from the table of settings is current, and says all of it."""

import dataclasses
from pathlib import Path

from scripts import client_options, settings_page

from turbopump.client import settings

ROOT = Path(__file__).parents[3]


def test_the_page_of_settings_is_current() -> None:
    assert settings_page.PAGE.read_text() == settings_page.page(), "run python scripts/settings_page.py"


def test_the_keyword_arguments_are_current() -> None:
    assert client_options.PATH.read_text() == client_options.text(), "run python scripts/client_options.py"


def test_every_setting_has_a_row_with_its_default() -> None:
    page = settings_page.page()
    kinds = (settings.ProducerSettings, settings.ConsumerSettings, settings.PullSettings)
    for field in {field.name: field for kind in kinds for field in dataclasses.fields(kind)}.values():
        assert f"| `{field.name}` |" in page
        assert f"`{settings_page.readable(field.default)}`".replace("|", "\\|") in page


def test_a_size_is_written_as_a_product() -> None:
    assert settings_page.readable(4 * 1024 * 1024) == "4 * 1024 * 1024"
    assert settings_page.readable(256 * 1024) == "256 * 1024"
    assert settings_page.readable(10_000) == "10000"
