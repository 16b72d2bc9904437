"""Parses an expression to a tree, by Apache's grammar:

    or          and (OR and)*
    and         equality (AND equality)*
    equality    comparison (= comparison | <> comparison | IS [NOT] NULL)*
    comparison  unary (< unary | <= unary | > unary | >= unary | [NOT] BETWEEN unary AND unary
                      | [NOT] IN (text, ...) | [NOT] CONTAINS text | ... STARTSWITH | ... ENDSWITH)*
    unary       + unary | - unary | NOT unary | text | number | TRUE | FALSE | NULL | property | ( or )

The operands of each operator are checked here too, as Apache does. What follows a complete expression is
ignored.
"""

from typing import Final

from turbopump.filter.errors import BadExpression
from turbopump.filter.lexer import END, FRACTION, NAME, TEXT, WHOLE, Lexer, Token
from turbopump.filter.tree import (
    And,
    Comparison,
    Constant,
    InList,
    Long,
    Negation,
    Node,
    Not,
    Or,
    Property,
    PropertyCondition,
    TextMatch,
)
from turbopump.filter.values import compare

MAX_TEXT: Final = 65_536
MAX_DEPTH: Final = 64  # parentheses and signs; each parenthesis takes six nested calls
MAX_TERMS: Final = 4096  # conditions and their operands: limits the cost per message
MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1

BOOLEAN: Final = (Comparison, InList, TextMatch, PropertyCondition, Not, And, Or)
NUMBERS: Final = (int, float)
NULL: Final = Constant(None)
LITERALS: Final = {"TRUE": Constant(True), "FALSE": Constant(False), "NULL": NULL}
ORDERS: Final = ("<", "<=", ">", ">=")
PARTS: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")


def parse(text: str) -> tuple[Node, int]:
    """Parses an SQL92 expression; returns the tree and its number of terms. Raises BadExpression."""
    if len(text) > MAX_TEXT:
        raise BadExpression(f"an expression must have at most {MAX_TEXT:,} characters", text, MAX_TEXT)
    parser = _Parser(text)
    return parser.all(), parser.terms


class _Parser:
    def __init__(self, text: str) -> None:
        self._lexer = Lexer(text)
        self._ahead: list[Token] = []  # at most two
        self._depth = 0
        self.terms = 0

    def all(self) -> Node:
        at = self._peek().position
        return self._boolean(self._or(), at)

    # --- tokens ---------------------------------------------------------------------------------------

    def _peek(self, distance: int = 0) -> Token:
        while len(self._ahead) <= distance:
            self._ahead.append(self._lexer.next())
        return self._ahead[distance]

    def _take(self) -> Token:
        self._peek()
        return self._ahead.pop(0)

    def _expect(self, kind: str, wanted: str) -> Token:
        token = self._peek()
        if token.kind != kind:
            raise self._unexpected(token, wanted)
        return self._take()

    def _unexpected(self, token: Token, wanted: str) -> BadExpression:
        found = "the end" if token.kind == END else repr(token.image)
        return self._bad(f"expected {wanted}, got {found}", token.position)

    def _bad(self, what: str, position: int) -> BadExpression:
        return BadExpression(what, self._lexer.text, position)

    def _count(self, token: Token) -> None:
        self.terms += 1
        if self.terms > MAX_TERMS:
            raise self._bad(f"an expression must have at most {MAX_TERMS:,} terms", token.position)

    # --- the levels of the grammar --------------------------------------------------------------------

    def _or(self) -> Node:
        at = self._peek().position
        first = self._and()
        if self._peek().kind != "OR":
            return first
        parts = [self._boolean(first, at)]
        while self._peek().kind == "OR":
            self._take()
            at = self._peek().position
            parts.append(self._boolean(self._and(), at))
        return Or(tuple(parts))

    def _and(self) -> Node:
        at = self._peek().position
        first = self._equality()
        if self._peek().kind != "AND":
            return first
        parts = [self._boolean(first, at)]
        while self._peek().kind == "AND":
            self._take()
            at = self._peek().position
            parts.append(self._boolean(self._equality(), at))
        return And(tuple(parts))

    def _equality(self) -> Node:
        left = self._comparison()
        while (token := self._peek()).kind in ("=", "<>", "IS"):
            self._count(self._take())
            if token.kind == "IS":
                left = self._is_null(left)
            else:
                equal = self._equal(left, self._comparison(), token)
                left = equal if token.kind == "=" else Not(equal)
        return left

    def _is_null(self, left: Node) -> Node:
        negated = self._peek().kind == "NOT"
        if negated:
            self._take()
        self._expect("NULL", "NULL" if negated else "NULL or NOT NULL")
        is_null = Comparison("=", left, NULL)
        return Not(is_null) if negated else is_null

    def _equal(self, left: Node, right: Node, sign: Token) -> Node:
        if left == NULL or right == NULL:
            raise self._bad("NULL cannot be compared; write IS NULL", sign.position)
        if _is_bool(left) and isinstance(right, Constant) and not _is_bool(right):
            raise self._bad("TRUE and FALSE cannot be compared with other constants", sign.position)
        return Comparison("=", left, right)

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            token = self._peek()
            if token.kind in ORDERS:
                self._count(self._take())
                left = self._ordered(token.kind, left, self._unary(), token)
            elif token.kind in PARTS or token.kind in ("BETWEEN", "IN"):
                left = self._word(left, negated=False)
            elif token.kind == "NOT":
                self._take()
                left = self._word(left, negated=True)
            else:
                return left

    def _word(self, left: Node, negated: bool) -> Node:
        token = self._peek()
        if token.kind not in PARTS and token.kind not in ("BETWEEN", "IN"):
            raise self._unexpected(token, "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
        self._count(self._take())
        if token.kind == "BETWEEN":
            return self._between(left, negated, token)
        if token.kind == "IN":
            return self._one_of(left, negated, token)
        return TextMatch(token.kind, left, self._text(), negated)

    def _ordered(self, sign: str, left: Node, right: Node, token: Token) -> Node:
        for operand in (left, right):
            if isinstance(operand, BOOLEAN) or (isinstance(operand, Constant) and not _is_number(operand)):
                what = "only numbers and properties can be compared by <, <=, >, >= and BETWEEN"
                raise self._bad(what, token.position)
        return Comparison(sign, left, right)

    def _between(self, value: Node, negated: bool, token: Token) -> Node:
        low = self._unary()
        self._expect("AND", "AND")
        high = self._unary()
        if negated:
            below = self._ordered("<", value, low, token)
            return Or((below, self._ordered(">", value, high, token)))
        parts = (self._ordered(">=", value, low, token), self._ordered("<=", value, high, token))
        if isinstance(low, Constant) and isinstance(high, Constant) and compare(low.value, high.value) > 0:
            what = f"BETWEEN must have the smaller number first, got {low.value!r} AND {high.value!r}"
            raise self._bad(what, token.position)
        return And(parts)

    def _one_of(self, left: Node, negated: bool, token: Token) -> Node:
        self._expect("(", "(")
        texts = [self._text()]
        while self._peek().kind == ",":
            self._count(self._take())
            texts.append(self._text())
        self._expect(")", "a comma or )")
        if not isinstance(left, Property):
            raise self._bad("IN must have a property before it", token.position)
        return InList(left.name, frozenset(texts), negated)

    def _unary(self) -> Node:
        token = self._peek()
        if token.kind not in ("+", "-", "NOT", "("):
            return self._primary(self._take())
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._bad(f"an expression must have at most {MAX_DEPTH} levels", token.position)
        self._count(self._take())
        node = self._nested(token)
        self._depth -= 1
        return node

    def _nested(self, token: Token) -> Node:
        if token.kind == "(":
            node = self._or()
            self._expect(")", "an operator or )")
            return node
        at = self._peek().position
        node = self._unary()
        if token.kind == "-":
            return Negation(node)
        return node if token.kind == "+" else Not(self._boolean(node, at))

    def _primary(self, token: Token) -> Node:
        self._count(token)
        if token.kind == NAME:
            return Property(token.image)
        if token.kind == TEXT:
            return Constant(_content(token))
        if token.kind == WHOLE:
            return Constant(self._whole(token))
        if token.kind == FRACTION:
            return Constant(self._fraction(token))
        if (literal := LITERALS.get(token.kind)) is not None:
            return literal
        raise self._unexpected(token, "a property, a constant or (")

    def _text(self) -> bytes:
        return _content(self._expect(TEXT, "a text in single quotes"))

    def _whole(self, token: Token) -> int:
        digits = token.image.rstrip("lL")
        if len(digits) > 19 or (number := int(digits)) > MAX_LONG:
            raise self._bad(f"an integer must have at most 64 bits: at most {MAX_LONG}", token.position)
        return number if number <= MAX_INT else Long(number)

    def _fraction(self, token: Token) -> float:
        number = float(token.image)
        if number == 0.0 or number == float("inf"):
            raise self._bad("write zero without a point; fractions have 64 bits", token.position)
        return number

    def _boolean(self, node: Node, at: int) -> Node:
        if isinstance(node, Property):
            return PropertyCondition(node.name)
        if node == NULL or _is_bool(node) or isinstance(node, BOOLEAN):
            return node
        raise self._bad("expected a condition", at)


def _is_number(constant: Constant) -> bool:
    return isinstance(constant.value, NUMBERS) and not isinstance(constant.value, bool)


def _is_bool(node: Node) -> bool:
    return isinstance(node, Constant) and isinstance(node.value, bool)


def _content(token: Token) -> bytes:
    return token.image[1:-1].replace("''", "'").encode("utf-8", "replace")
