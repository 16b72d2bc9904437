"""Describes what a checkpoint belongs to: a job with its endpoints, conditions and options. Pure.

A checkpoint holds the progress of one job. Used by another one, it would skip what the first has read. So the
description of the job is stored beside Spark's files, and a job with another description is refused. Settings
that do not change which rows arrive where are not part of it: speed, timeouts, connections.
"""

import json
from collections.abc import Mapping
from typing import Any

from turbopump.pipelines.credentials import CREDENTIALS, words_of

FILE = "turbopump-job.json"
VERSION = 1

FREE_FLAGS = frozenset(
    {
        *("master", "conf", "ship", "follow", "every", "checkpoint", "name", "compact", "rate", "report"),
        *("allow", "keep-checkpoint", "explain", "remember", "namesrv", "sql-file"),
    }
)
"""Flags that may differ from run to run."""
FREE_OPTIONS = frozenset(
    {
        *("nameserver", "rocketmq.namesrv.addr", "namesrvaddr", "nameservers"),
        *("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "minpartitions"),
        *("maxrecordsperpartition", "arrowbatchrows", "pullbatchsize", "pulltimeoutms"),
        *("fetchoffset.numretries", "fetchoffset.retryintervalms", "sendtimeoutms"),
        *("failondataloss", "allowmissingbrokers"),
        *words_of(CREDENTIALS),
        *("usetls", "rocketmq.use.tls", "tlstrustcertpath", "tlscertpath", "tlskeypath", "tlskeypassword"),
    }
)
"""Options that may differ from run to run, in lower case: Spark does not keep the case."""

Fingerprint = Mapping[str, str]


def fingerprint(
    job: str, given: Mapping[str, Any], name_server: str, texts: Mapping[str, str]
) -> Fingerprint:
    """Returns what ties a checkpoint to a job: its name, cluster, endpoints, conditions and options.

    `texts`: contents of files that flags name (SQL, an Avro schema), which count instead of the names.
    """
    found = {"job": job, "cluster": _cluster(name_server)}
    for key, value in given.items():
        name = key.replace("_", "-")
        if name in FREE_FLAGS or key in texts or value in (None, (), {}):
            continue
        if isinstance(value, Mapping):
            found |= {
                f"{name} {option.lower()}": str(one)
                for option, one in value.items()
                if option.lower() not in FREE_OPTIONS
            }
        else:
            found[name] = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return found | {key.replace("_", "-"): text for key, text in texts.items()}


def _cluster(name_server: str) -> str:
    """Returns the name servers sorted and joined by `;`, so that the same servers give the same text."""
    return ";".join(sorted(one.strip() for one in name_server.replace(",", ";").split(";") if one.strip()))


def encoded(found: Fingerprint) -> str:
    return json.dumps({"version": VERSION, **found}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def decoded(text: str) -> Fingerprint:
    document = json.loads(text)
    return {str(name): str(value) for name, value in document.items() if name != "version"}


def differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Returns a line `name: was …, now …` for each entry in which two fingerprints differ."""
    return [
        f"{name}: was {_said(before.get(name))}, now {_said(now.get(name))}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def _said(value: str | None) -> str:
    return "not given" if value is None else repr(value)


def refusal(where: str, differing: list[str]) -> str:
    """Returns the error text for a checkpoint that belongs to another job: what differs, and what to do."""
    lines = "".join(f"\n  {line}" for line in differing)
    return (
        f"the checkpoint {where} belongs to another job, whose progress would count as this one's:{lines}\n"
        "Give --name or --checkpoint for a job of its own, which begins at the start; or run the job as "
        "before; or, if the change is meant to apply from here on, add --keep-checkpoint"
    )
