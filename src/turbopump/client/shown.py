"""Bodies of messages as short readable text, for shells and notebooks."""

MAX_SHOWN = 80
"""Characters of a body. Longer ones are cut, and their size in bytes is added."""


def body_text(body: bytes, most: int = MAX_SHOWN) -> str:
    """Returns up to `most` characters of a body as a Python literal: of text if it is UTF-8, else bytes.

    >>> body_text("größe".encode()), body_text(bytes([1, 255])), body_text(b"x" * 100, 5)
    ("'größe'", "b'\\\\x01\\\\xff'", "'xxxxx'… (100 bytes)")
    """
    part = body[: 4 * most]
    try:
        text: str | bytes = part.decode()
    except UnicodeDecodeError as error:
        cut_in_between = len(part) < len(body) and error.start > len(part) - 4
        text = part[: error.start].decode() if cut_in_between else part
    cut = text[:most]
    rest = "" if len(cut) == len(text) and len(part) == len(body) else f"… ({len(body)} bytes)"
    return f"{cut!r}{rest}"
