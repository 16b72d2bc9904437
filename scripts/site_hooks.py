"""Hooks of mkdocs: pictures for the light and dark mode of the site, a wide front page, names that wrap.

Pages name a picture for light and one for dark pages in a `<picture>`, which GitHub shows by the reader's
setting. The site has a switch of its own, so both are put on its page and the style sheet shows one of them.
"""

import re
from typing import Any

PICTURE = re.compile(
    r'(?:<p>)?<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">'
    r'\s*<img alt="([^"]*)" src="([^"]+)">\s*</picture>(?:</p>)?'
)

NAMES = re.compile(r"(<code>)([^<\s]+)(</code>)")
MIN_BREAKABLE = 16


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs with each page as it is written. The front page has no columns beside its text."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Called by mkdocs with each page after Markdown became HTML."""
    html = PICTURE.sub(
        r'<div class="picture"><img alt="\2" src="\3#only-light"><img alt="\2" src="\1#only-dark"></div>',
        html,
    )
    return NAMES.sub(lambda found: found[1] + breakable(found[2]) + found[3], html)


def breakable(code: str) -> str:
    """Returns a long name with places where a line may end: behind `_`, `.` and `/`, and before a capital."""
    if len(code) < MIN_BREAKABLE or "&" in code:
        return code
    return re.sub(r"(?<=[_./,])(?!py\b)(?=\w)|(?<=[a-z])(?=[A-Z])", "<wbr>", code)
