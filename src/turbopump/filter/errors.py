"""Errors in filter expressions, with their position."""

SHOWN = 30  # characters on each side of the position


class BadExpression(ValueError):
    """Raised for text that is not a valid SQL92 expression. `position` counts characters from 0."""

    def __init__(self, what: str, text: str, position: int) -> None:
        super().__init__(what, text, position)
        self.what = what
        self.text = text
        self.position = position

    def __str__(self) -> str:
        before = self.text[: self.position]
        line = before.count("\n") + 1
        column = self.position - before.rfind("\n")
        return f"{self.what} (line {line}, column {column}: {self._excerpt()})"

    def _excerpt(self) -> str:
        """Returns the text around the position, with a mark in front of it."""
        begin, end = max(self.position - SHOWN, 0), self.position + SHOWN
        left, right = self.text[begin : self.position], self.text[self.position : end]
        cut_left, cut_right = "..." if begin else "", "..." if end < len(self.text) else ""
        return f"{cut_left}{left}[here]{right}{cut_right}".replace("\n", " ").replace("\r", " ")


class BadTags(ValueError):
    """Raised for text that is not a tag expression; the message says what is expected."""
