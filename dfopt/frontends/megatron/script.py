"""The words that a launch script starts a Python program with: read, never run.

Bash as scripts use it that start training: variables with defaults, arrays, quotation, continued lines, arithmetic,
``if`` over what is known, ``eval``. What only a shell would know (``$1``, variables of the environment, the output of
a command, what a loop sets) stays unknown: it is refused where it would say what a step costs, and nowhere else.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_NEST: Final = r"(?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*"
_EXPANSION: Final = rf"\$\({_NEST}\)|`[^`]*`|\$\{{[^}}]*\}}|\$(?:[A-Za-z_]\w*|[\d@*#?!$-])"
_DOLLAR: Final = r"\$(?![\w({@*#?!$-])"
_QUOTED: Final = rf"""'[^']*'|"(?:\\.|{_EXPANSION}|[^"\\$`]|{_DOLLAR})*\""""
_PIECE: Final = rf"""{_QUOTED}|\\[^\n]|{_EXPANSION}|(?<=\S)\#|[^\s'"\\`;&|<>()\#$]|{_DOLLAR}"""
_SPACE: Final = r"[ \t\r]+|\\\n|(?<!\S)\#[^\n]*"
_TOKEN: Final = re.compile(
    rf"(?P<space>{_SPACE})|(?P<text><<-? *['\"]?(?P<mark>\w+)['\"]?[^\n]*\n.*?\n\s*(?P=mark)(?=\n|$))"
    r"|(?P<redirect>&?\d*[<>]+(?:&\d|-)?)|(?P<end>\n|;;|;|&&|\|\||[|&()])"
    rf"|(?P<word>\w+\+?=\((?:{_SPACE}|\n|{_PIECE})*\)|(?:{_PIECE})+)",
    re.DOTALL,
)
_PARTS: Final = re.compile(_PIECE, re.DOTALL)
_INSIDE: Final = re.compile(rf"(?<!\\)({_EXPANSION})", re.DOTALL)
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$\{?(\w+|[@*])(\[(?:[@*]|\d+)\])?(?:(:?)[-=](.*?))?\}?", re.DOTALL)
_FIELD, _EMPTY, _UNKNOWN = "\x01", "\x02", "\0"
_KEYWORDS: Final = ("then", "do", "else", "elif", "if", "for", "while", "until", "case", "select", "function", "{")
_ENDS: Final = ("fi", "done", "esac", "}")
_COMPARED: Final[dict[str, Callable[[str, str], bool]]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne,
    "-eq": lambda a, b: int(a) == int(b), "-ne": lambda a, b: int(a) != int(b), "-lt": lambda a, b: int(a) < int(b),
    "-le": lambda a, b: int(a) <= int(b), "-gt": lambda a, b: int(a) > int(b), "-ge": lambda a, b: int(a) >= int(b),
    "-z": lambda _, b: b == "", "-n": lambda _, b: b != "",
}  # fmt: skip
_COUNTED: Final[dict[type, Callable[[int, int], int]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


class Command(NamedTuple):
    """A Python command in a script: words of its launcher, and its own words."""

    launcher: list[str]
    words: list[str]


def unknown_in(text: str) -> list[str]:
    """Parts of a text that only a shell could evaluate.

    Examples
    --------
    >>> script = Script()
    >>> script.run("python train.py --save $OUT/$1")
    >>> unknown_in(script.commands[0].words[1])
    ['$OUT', '$1']
    """
    return [bytes.fromhex(name).decode() for name in text.split(_UNKNOWN)[1::2]]


def _unknown(text: str) -> str:
    return f"{_UNKNOWN}{text.encode().hex()}{_UNKNOWN}"  # neither space nor quotation, as it may be read again


class Script:
    """Interpreter for simple shell scripts: collects Python commands, variables and used defaults.

    Examples
    --------
    >>> script = Script()
    >>> script.run('N=4; SIZES=(--num-layers $((N*2)) --seq-length ${SEQ:-128})')
    >>> script.run('torchrun --nnodes 1 pretrain_gpt.py "${SIZES[@]}"')
    >>> script.commands[0].words, script.defaults
    (['--num-layers', '8', '--seq-length', '128'], {'SEQ': '128'})
    """

    def __init__(self) -> None:
        self.variables: dict[str, list[str]] = {}
        self.commands: list[Command] = []
        self.defaults: dict[str, str] = {}
        self._branches: list[tuple[bool | None, bool | None]] = []  # whether one is taken, and one of those up to it

    def run(self, text: str) -> None:
        """Interpret the statements of a text.

        Raises
        ------
        ValueError
            For a quotation or a parenthesis that is not closed.
        """
        tested = False
        for joint, words in _statements(text):
            tested = tested and joint in ("&&", "||")
            self._statement(words, unsure=tested)
            tested = tested or words[0] in ("[", "[[", "test")

    def _statement(self, words: list[str], *, unsure: bool) -> None:
        head, rest = words[0], words[1:]
        if head in ("elif", "else") and self._branches:
            now, before = True if head == "else" else self._true(rest), self._branches[-1][1]
            self._branches[-1] = (now, now) if before is False else (False if before else None, before)
        elif head in _KEYWORDS[4:]:
            self._branches.append((self._true(rest),) * 2 if head == "if" else (None, None))
        elif head in _ENDS and self._branches:
            self._branches.pop()
        if head in ("then", "else", "do", "{") and rest:
            self._statement(rest, unsure=unsure)
        elif head not in _KEYWORDS and head not in _ENDS and all(now is not False for now, _ in self._branches):
            self._simple(words, unsure=unsure or any(now is None for now, _ in self._branches))

    def _true(self, words: list[str]) -> bool | None:
        """Whether a test holds; none if that is not known."""
        texts = [self._text(word) for word in words if word not in ("[", "[[", "]", "]]", "test")]
        turned = texts[:1] == ["!"]
        left, compared, right = ["", *texts[turned:]][-3:] if len(texts[turned:]) in (2, 3) else ("", "", "")
        if compared not in _COMPARED or unknown_in(left + right) or set(right) & set("*?["):
            return None
        try:
            return _COMPARED[compared](left, right) != turned
        except ValueError:
            return None

    def _simple(self, words: list[str], *, unsure: bool) -> None:
        """A statement that controls nothing: assignments, or a command."""
        plain = [
            word for word in words if word not in ("export", "local", "readonly", "declare", "typeset", "-x", "-a")
        ]
        matches = [match for word in plain if (match := _ASSIGNED.fullmatch(word))]
        if len(matches) == len(plain):
            for match in matches:
                self._assign(match[1], bool(match[2]), [_unknown(f"${match[1]}")] if unsure else self._value(match[3]))
            return
        fields = [field for word in words for field in self.expand(word)]
        text = next((place for place, field in enumerate(fields) if field in ("-c", "-lc")), len(fields))
        start = next((place for place, field in enumerate(fields) if field.endswith(".py")), len(fields))
        if fields[:1] == ["eval"]:
            self.run(" ".join(fields[1:]))
        elif 0 < text < len(fields) - 1 and fields[text - 1].rpartition("/")[2] in ("bash", "sh"):
            self.run(fields[text + 1])
        elif start < len(fields) and fields[0] not in ("echo", "printf"):
            self.commands.append(Command(fields[:start], fields[start + 1 :]))

    def _value(self, text: str) -> list[str]:
        """What is assigned: one text, or those of an array."""
        if not text.startswith("("):
            return [self._text(text)]
        return [field for _, words in _statements(text[1:-1]) for word in words for field in self.expand(word)]

    def _assign(self, name: str, more: bool, value: list[str]) -> None:
        earlier = self.variables.get(name, []) if more else []
        joined = len(earlier) == len(value) == 1
        self.variables[name] = [earlier[0] + value[0]] if joined else [*earlier, *value]

    def expand(self, word: str) -> list[str]:
        """Words that a shell word expands to."""
        fields = "".join(self._pieces(word, split=True)).split(_FIELD)
        return [field.replace(_EMPTY, "") for field in fields if field]

    def _text(self, word: str) -> str:
        """What a word becomes that is not split."""
        return "".join(self._pieces(word, split=False)).replace(_FIELD, " ").replace(_EMPTY, "")

    def _pieces(self, word: str, *, split: bool) -> Iterator[str]:
        for piece in _PARTS.findall(word):
            if piece[0] == "'":
                yield _EMPTY + piece[1:-1]
            elif piece[0] == '"':
                parts = _INSIDE.split(piece[1:-1].replace("\\\n", ""))
                values = [self._expansion(part) for part in parts[1::2]]
                parts[1::2] = [_FIELD.join(value) for value in values]
                parts[::2] = [re.sub(r'\\(["\\$`])', r"\1", part) for part in parts[::2]]
                yield "".join(parts) if values == [[]] else _EMPTY + "".join(parts)  # "$@" of nothing is no word
            elif piece[0] in "$`" and len(piece) > 1:
                value = " ".join(self._expansion(piece))
                yield re.sub(r"\s+", _FIELD, value) if split else value
            else:
                yield piece.removeprefix("\\")

    def _expansion(self, text: str) -> list[str]:
        """What stands for a variable, an arithmetic expression, or the output of a command."""
        if text.startswith("$(("):
            return [self._number(text[3:-2])]
        if (match := _VARIABLE.fullmatch(text)) is None:
            return [_unknown(text)]
        name, index, empty_too, default = match.groups()
        value = self.variables.get(name)
        if default is not None and (value is None or (empty_too and value in ([], [""]))):
            self.defaults[name] = self._text(default)
            return [self.defaults[name]]
        if name in ("@", "*"):
            self.defaults[name] = "nothing"
            return []
        if value is None:
            return [_unknown(f"${name}")]
        return value if index in ("[@]", "[*]") else value[int(index[1:-1]) if index else 0 :][:1] or [""]

    def _number(self, text: str) -> str:
        """The value of an arithmetic expression over whole numbers."""
        names = re.compile(rf"{_EXPANSION}|[A-Za-z_]\w*", re.DOTALL)
        filled = names.sub(lambda match: "".join(self._expansion("$" + match[0].removeprefix("$"))), text)
        try:
            return str(_counted(ast.parse(filled.strip().replace("/", "//"), mode="eval").body))
        except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
            return _unknown(f"$(({text}))")


def _counted(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        return _COUNTED[type(node.op)](_counted(node.left), _counted(node.right))
    raise ValueError("no whole numbers")


def _statements(text: str) -> Iterator[tuple[str, list[str]]]:
    """What joins a statement to the one before it, and its words as they stand, without redirections."""
    words: list[str] = []
    joint, place, aside = "\n", 0, False
    while place < len(text):
        if (match := _TOKEN.match(text, place)) is None:
            raise ValueError(f"no end of what begins with {text[place : place + 20]!r}")
        place = match.end()
        if match["redirect"] is not None:
            aside = "&" not in match["redirect"][1:]
        elif match["word"] is not None:
            words += [] if aside else [match["word"]]
            aside = False
        elif match["space"] is None:
            if words:
                yield joint, words
            joint = match["end"] or "\n" if words or match["end"] != "\n" else joint
            words = []
    if words:
        yield joint, words
