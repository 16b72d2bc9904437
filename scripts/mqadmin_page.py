"""Writes docs/mqadmin.md from the table of commands that mqadmin itself uses.

Run `python scripts/mqadmin_page.py` after a change of the table. A unit test fails when the page is not
current.
"""

from pathlib import Path

from turbopump.admin.command import AdminCommand
from turbopump.admin.commands import AREAS
from turbopump.admin.options import CommandOption
from turbopump.admin.render import java_text
from turbopump.admin.unsupported import NEEDS

PAGE = Path(__file__).parent.parent / "docs" / "mqadmin.md"

HEAD = """\
# mqadmin

<!-- Written by scripts/mqadmin_page.py; change the tables in src/turbopump/admin, not this page. -->

Apache's command line for clusters, with its names, options and columns, so that commands from RocketMQ books
and from your scripts work unchanged. It works with Apache's servers too. `turbopump admin` is the same
program.

```
mqadmin topicList -n 127.0.0.1:9876
mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t orders -r 8 -w 8
mqadmin consumerProgress -n 127.0.0.1:9876 -g readers --json
```

- Name servers: `-n` or the environment variable `NAMESRV_ADDR`, several separated by `;`. The default is
  127.0.0.1:9876.
- Requests are signed with the first of these that is there: the file of `--credentials` (properties with
  `AccessKey` and `SecretKey`, or Apache's `tools.yml`), what [every client](client.md#credentials) finds in
  its settings and environment, and `$ROCKETMQ_HOME/conf/tools.yml`. No option takes the secret itself, since
  other users of a machine can read command lines. Values in `tools.yml` that YAML could read as something
  else than text must be in quotes.
- The case of command names does not matter. An option can be written as `-t orders`, `-torders`,
  `--topic orders` or `--topic=orders`.
- `mqadmin help` lists the commands, `mqadmin help topicList` (or `mqadmin topicList -h`) the options of one.
- `--json` prints one JSON document instead of text, with stable keys. Commands that run
  until they are stopped print JSON lines: one document per line, for each round and each event.
- The last line of an incomplete answer begins with `(cut:`, and its document has a key `cut`.
- Exit status: 0 done, 1 failed, 2 wrong usage. A failure is one line on stderr; Apache's mqadmin prints a
  stack trace and exits with 0.
- Commands that run until they are stopped end with Ctrl-C, status 0.

Below, an option in **bold** is required; of options joined by "or", one is.
"""

UNSUPPORTED = """
## Not supported

These commands of Apache's print one line and exit with status 1, because the feature does not exist here.

| needs | commands |
|---|---|
"""


def page() -> str:
    parts = [HEAD]
    for area, commands in AREAS.items():
        parts.append(f"\n## {area}\n")
        parts += [_section(command) for command in commands]
    parts.append(UNSUPPORTED)
    parts += [
        f"| {need} | {', '.join(f'`{name}`' for name in commands)} |\n" for need, commands in NEEDS.items()
    ]
    return "".join(parts)


def _section(command: AdminCommand) -> str:
    aliases = f" Also `{'`, `'.join(command.aliases)}`." if command.aliases else ""
    summary = command.summary[0].upper() + command.summary[1:]
    lines = [f"\n### `{command.name}`\n\n{summary.rstrip('.')}.{aliases}\n"]
    choices = [choice for choice in (command.one_of, command.any_of) if choice]
    if choices:
        told = [" or ".join(f"**`-{option.short}`**" for option in choice) for choice in choices]
        lines.append(f"\nWith {'; and with '.join(told)}.\n")
    chosen = [option for choice in choices for option in choice]
    own = [option for option in command.all_options if option in (*command.options, *chosen)]
    if own:
        lines.append("\n| option | |\n|---|---|\n")
        lines += [_row(option) for option in own]
    return "".join(lines)


def _row(option: CommandOption[object]) -> str:
    short = f"`-{option.short}`" if option.short else ""
    names = f"{short} `--{option.long}`".strip()
    shown = f"**{names}**" if option.is_required else names
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (shown, _told(option))) + " |\n"


def _told(option: CommandOption[object]) -> str:
    """The help, with the default where it does not say it already."""
    if option.default in (None, False, "") or "default" in option.help.lower():
        return option.help
    return f"{option.help.rstrip('.')}; default {java_text(option.default)}"


if __name__ == "__main__":
    PAGE.write_text(page())
