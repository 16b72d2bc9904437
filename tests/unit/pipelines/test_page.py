from scripts import pipelines_page


def test_the_page_of_options_is_current():
    """Tables in modules that need Spark are compared where it is installed."""
    page = pipelines_page.PAGE.read_text()
    assert page.startswith(pipelines_page.HEAD)
    for section in pipelines_page.sections().values():
        assert section in page, "run python scripts/pipelines_page.py"


def test_reading_is_on_the_page():
    assert "turbopump.pipelines.source.settings.OPTIONS" in pipelines_page.sections()


def test_every_option_of_every_format_is_on_the_page_once_under_its_format():
    """Each table has a section with a title for people, and no section lacks a table."""
    found = pipelines_page.sections()
    assert not found.keys() - pipelines_page.TITLES.keys(), "give the new table a title"
    page = pipelines_page.PAGE.read_text()
    titles = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert titles == list(pipelines_page.TITLES.values())
    assert not any(word in page for word in ("Positions(", "frozenset", "`()`"))
