"""Bodies and other foreign text for terminals and JSON: terminal controls are escaped, no byte is lost.

In: bytes or text from any sender. Out: text that is safe to print. Every command that prints bodies uses
these functions.
"""

import base64
import re

_JOINERS = "\u200c\u200d"
_LINE_ENDS = "\u2028\u2029"
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, keep: str = "") -> str:
    r"""Escapes control characters of terminals and line ends, except those in `keep`.

    >>> print(printable("red: \x1b[31m, two\nlines, 中文"))
    red: \x1b[31m, two\nlines, 中文
    """
    if text.isprintable():
        return text
    return "".join(char if char in keep or _is_plain(char) else _escape(char) for char in text)


def body_text(body: bytes, charset: str = "utf-8") -> str:
    r"""Returns a body as one line of text; bytes that are not text are shown as `\xff`.

    >>> print(body_text(b"caf\xc3\xa9 \xff\x07"))
    café \xff\x07
    """
    return printable(body.decode(charset, "backslashreplace"))


def body_fields(body: bytes) -> dict[str, str]:
    """Returns the JSON field for a body: `body` when it is UTF-8 text, else `bodyBase64`.

    >>> body_fields(b"paid"), body_fields(b"\\xff")
    ({'body': 'paid'}, {'bodyBase64': '/w=='})
    """
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}


def printable_json(document: str) -> str:
    r"""Escapes terminal controls that JSON does not escape: DEL, C1, directions of text.

    >>> printable_json('{"body":"\x9b31m"}')
    '{"body":"\\u009b31m"}'
    """
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def _is_plain(char: str) -> bool:
    """Tells whether a character is printed unchanged: also U+3000 and emoji joiners (see `isprintable`)."""
    if char.isprintable() or char in _JOINERS:
        return True
    return char.isspace() and char > "\x9f" and char not in _LINE_ENDS


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()
