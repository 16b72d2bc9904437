"""`turbopump completion SHELL`: prints a script that completes commands, actions and options.

The script contains all words, so that a key press starts no Python. A place is a command line without its
options and values, such as `turbopump dlq list`; each has a list of words that can follow, made from the
parsers. Where no word is known, the shells complete file names.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from turbopump.cli.main import COMMANDS, parser_of

MAX_HELP = 90


@dataclass(frozen=True, slots=True)
class CompletionWord:
    """A word that can follow at a place of the command line, with its description."""

    text: str
    help: str
    takes_value: bool = False
    choices: tuple[str, ...] = ()

    @property
    def is_option(self) -> bool:
        return self.text.startswith("-")


Places = dict[str, list[CompletionWord]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=" or ".join(SHELLS))


def run(options: argparse.Namespace) -> int:
    print(SHELLS[options.shell](places()), end="")
    return 0


# --- words -----------------------------------------------------------------------------------------------


def places() -> Places:
    """Returns the words that can follow each place, a command line such as `turbopump dlq list`."""
    found: Places = {
        "turbopump": [
            *(CompletionWord(name, summary) for name, summary in COMMANDS.items()),
            CompletionWord("--help", "show the help"),
            CompletionWord("--version", "show the version"),
        ]
    }
    for name in COMMANDS:
        found |= _of_parser(f"turbopump {name}", parser_of(name, f"turbopump {name}"))
    found["turbopump help"] += [
        CompletionWord(name, summary) for name, summary in COMMANDS.items() if name != "help"
    ]
    found |= _of_parser("mqbroker", parser_of("broker", "mqbroker"))
    found |= _of_parser("mqnamesrv", parser_of("namesrv", "mqnamesrv"))
    found["mqshutdown"] = [
        CompletionWord("broker", "stop brokers"),
        CompletionWord("namesrv", "stop name servers"),
    ]
    for program in ("turbopump admin", "mqadmin"):
        found |= _of_administration(program)
    return found


def _of_parser(place: str, parser: argparse.ArgumentParser) -> Places:
    words: list[CompletionWord] = []
    below: Places = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            words += [CompletionWord(name, _short(helps.get(name, ""))) for name in action.choices]
            for name, child in action.choices.items():
                below |= _of_parser(f"{place} {name}", child)
        elif action.option_strings:
            words += [_option(action, option) for option in action.option_strings]
        elif action.choices:
            words += [CompletionWord(str(choice), "") for choice in action.choices]
    return {place: words} | below


def _option(action: argparse.Action, text: str) -> CompletionWord:
    help_text = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
    choices = tuple(str(choice) for choice in action.choices or ())
    return CompletionWord(
        text, _short(help_text.replace("%(default)s", str(action.default))), action.nargs != 0, choices
    )


def _of_administration(program: str) -> Places:
    from turbopump.admin.commands import AREAS

    found: Places = {program: [CompletionWord("help", "explain a command")]}
    commands = {command.name: command for area in AREAS.values() for command in area}
    for name, command in sorted(commands.items()):
        found[program].append(CompletionWord(name, _short(command.summary)))
        found[f"{program} {name}"] = [
            CompletionWord(text, _short(option.help), not option.is_flag)
            for option in command.all_options
            for text in (f"-{option.short}" if option.short else "", f"--{option.long}")
            if text and " " not in text  # one of Apache's option names is `print msg`
        ]
    found[f"{program} help"] = [
        CompletionWord(name, _short(command.summary)) for name, command in sorted(commands.items())
    ]
    return found


def _short(help_text: str) -> str:
    line = " ".join(help_text.split())
    return line if len(line) <= MAX_HELP else line[: MAX_HELP - 3] + "..."


def _programs(found: Places) -> list[str]:
    return [place for place in found if " " not in place]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# --- bash ------------------------------------------------------------------------------------------------

BASH = r"""# Completion of turbopump for bash: source <(turbopump completion bash)

_turbopump_words() {
    case "$1" in
@WORDS@
        *) return 1 ;;
    esac
}

_turbopump_complete() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local place=${COMP_WORDS[0]##*/} word options values actions choices=''
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        _turbopump_words "$place $word" && place="$place $word"
    done
    _turbopump_words "$place" || return 0
    if [[ " $values " == *" $previous "* ]]; then
        case "$place $previous" in
@CHOICES@
        esac
        COMPREPLY=($(compgen -W "$choices" -- "$current"))
    elif [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
    else
        COMPREPLY=($(compgen -W "$actions" -- "$current"))
    fi
}

complete -o default -F _turbopump_complete @PROGRAMS@
"""


def bash(found: Places) -> str:
    return (
        BASH.replace("@WORDS@", "\n".join(_bash_place(*entry) for entry in found.items()))
        .replace("@CHOICES@", "\n".join(_choices(found)))
        .replace("@PROGRAMS@", " ".join(_programs(found)))
    )


def _bash_place(place: str, words: list[CompletionWord]) -> str:
    options = " ".join(word.text for word in words if word.is_option)
    values = " ".join(word.text for word in words if word.takes_value)
    actions = " ".join(word.text for word in words if not word.is_option)
    return f"        '{place}') options='{options}' values='{values}' actions='{actions}' ;;"


def _choices(found: Places) -> Iterator[str]:
    for place, words in found.items():
        for word in words:
            if word.choices:
                yield f"            '{place} {word.text}') choices='{' '.join(word.choices)}' ;;"
    yield "            *) ;;"


# --- zsh -------------------------------------------------------------------------------------------------

ZSH = r"""#compdef @PROGRAMS@
# Completion of turbopump for zsh: source <(turbopump completion zsh), or keep it as _turbopump in $fpath

_turbopump_words() {
    case "$1" in
@WORDS@
        *) return 1 ;;
    esac
}

_turbopump() {
    local place=${words[1]:t} word choices=''
    local -a options values actions
    for word in "${(@)words[2,CURRENT-1]}"; do
        _turbopump_words "$place $word" && place="$place $word"
    done
    _turbopump_words "$place" || return 1
    if (( ${values[(Ie)${words[CURRENT-1]}]} )); then
        case "$place ${words[CURRENT-1]}" in
@CHOICES@
        esac
        if [[ -n $choices ]]; then compadd -- ${=choices}; else _files; fi
    elif [[ ${words[CURRENT]} == -* ]]; then
        _describe option options
    elif (( $#actions )); then
        _describe action actions
    else
        _files
    fi
}

if [[ ${funcstack[1]} == _turbopump ]]; then _turbopump "$@"; else compdef _turbopump @PROGRAMS@; fi
"""


def zsh(found: Places) -> str:
    return (
        ZSH.replace("@WORDS@", "\n".join(_zsh_place(*entry) for entry in found.items()))
        .replace("@CHOICES@", "\n".join(_choices(found)))
        .replace("@PROGRAMS@", " ".join(_programs(found)))
    )


def _zsh_place(place: str, words: list[CompletionWord]) -> str:
    options = " ".join(_described(word) for word in words if word.is_option)
    values = " ".join(word.text for word in words if word.takes_value)
    actions = " ".join(_described(word) for word in words if not word.is_option)
    return f"        '{place}') options=({options}) values=({values}) actions=({actions}) ;;"


def _described(word: CompletionWord) -> str:
    return _quoted(word.text.replace(":", r"\:") + (f":{word.help}" if word.help else ""))


# --- fish ------------------------------------------------------------------------------------------------

FISH = r"""# Completion of turbopump for fish: turbopump completion fish | source

set -g __turbopump_places @PLACES@

function __turbopump_at
    set -l tokens (commandline -opc)
    set -l place (basename -- $tokens[1])
    for token in $tokens[2..-1]
        contains -- "$place $token" $__turbopump_places; and set place "$place $token"
    end
    test "$place" = "$argv[1]"
end

@WORDS@
"""


def fish(found: Places) -> str:
    lines = [
        _fish_word(place, word)
        for place, words in found.items()
        for word in words
        if not word.text.startswith("-") or word.text.lstrip("-")
    ]
    return FISH.replace("@PLACES@", " ".join(_quoted(place) for place in found)).replace(
        "@WORDS@", "\n".join(lines)
    )


def _fish_word(place: str, word: CompletionWord) -> str:
    parts = [f"complete -c {place.partition(' ')[0]} -n {_quoted(f'__turbopump_at {_quoted(place)}')}"]
    parts.append(_fish_name(word))
    if word.choices:
        parts.append(f"-xa {_quoted(' '.join(word.choices))}")
    elif word.takes_value:
        parts.append("-r")
    elif not word.is_option:
        parts.append("-f")
    return " ".join(parts + ([f"-d {_fish_quoted(word.help)}"] if word.help else []))


def _fish_name(word: CompletionWord) -> str:
    if not word.is_option:
        return f"-a {_quoted(word.text)}"
    name = word.text.lstrip("-")
    if word.text.startswith("--"):
        return f"-l {name}"
    return f"-s {name}" if len(name) == 1 else f"-o {name}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: dict[str, Callable[[Places], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
