"""Lists of addresses as people write them: `a:9876;b:9876`.

In: text of an option, a command line, a variable or a file. Out: its parts. `;` is what Apache writes and
what our pages say; `,` is taken as well, everywhere, since no address has one. Addresses are not checked.
"""

import re

_BETWEEN = re.compile("[;,]")


def split_list(text: str) -> tuple[str, ...]:
    """The parts without blanks around them; empty ones are left out."""
    return tuple(part.strip() for part in _BETWEEN.split(text) if part.strip())
