from scripts import pipelines_page


def test_the_page_of_options_is_current():
    """Tables in modules that need Spark are compared where it is installed."""
    page = pipelines_page.PAGE.read_text()
    assert page.startswith(pipelines_page.HEAD)
    for section in pipelines_page.sections().values():
        assert section in page, "run python scripts/pipelines_page.py"


def test_reading_is_on_the_page():
    assert "turbopump.pipelines.source.settings" in pipelines_page.sections()
