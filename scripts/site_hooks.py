"""Hooks of mkdocs: pictures that follow the light and dark mode of the site, and a wide front page.

Pages name a picture for light and one for dark pages in a `<picture>`, which GitHub shows by the reader's
setting. The site has a switch of its own, so both are put on its page and the style sheet shows one of them.
"""

import re
from typing import Any

PICTURE = re.compile(
    r'(?:<p>)?<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">'
    r'\s*<img alt="([^"]*)" src="([^"]+)">\s*</picture>(?:</p>)?'
)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs with each page as it is written. The front page has no columns beside its text."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Called by mkdocs with each page after Markdown became HTML."""
    return PICTURE.sub(
        r'<div class="picture"><img alt="\2" src="\3#only-light"><img alt="\2" src="\1#only-dark"></div>',
        html,
    )
