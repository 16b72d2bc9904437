"""Finds the credentials with which `mqadmin` signs its requests.

In: the option --credentials, environment variables and files. Out: settings of the client. A secret is in no
error, and no option takes one: other users of a machine can read command lines.
"""

from collections.abc import Mapping
from pathlib import Path

from turbopump.admin.options import UsageError
from turbopump.admin.tools_file import BadToolsFile, tools_credentials
from turbopump.auth.signature import Credentials
from turbopump.client import discovery
from turbopump.client.credentials import credentials_in, credentials_of
from turbopump.client.options import ClientOptions
from turbopump.client.settings import ClientSettings, made
from turbopump.runtime.disk import Disk

HOME_VARIABLE = "ROCKETMQ_HOME"
TOOLS_FILE = "conf/tools.yml"
YAML = (".yml", ".yaml")


def signing_settings(path: str | None, environ: Mapping[str, str], disk: Disk) -> ClientOptions:
    """Returns the settings that sign requests; none if nothing names credentials. Raises UsageError.

    The first of these counts: the file of --credentials; settings and environment, as for every client;
    $ROCKETMQ_HOME/conf/tools.yml, as for Apache's mqadmin.
    """
    found = _first(path, environ, disk)
    if found is None:
        return {}
    return {
        "access_key": found.access_key,
        "secret_key": found.secret_key,
        "security_token": found.security_token,
    }


def _first(path: str | None, environ: Mapping[str, str], disk: Disk) -> Credentials | None:
    if path is not None:
        found = _read(str(Path(path).expanduser()), disk)
        if found is None:
            raise UsageError(f"--credentials: {path} has no accessKey and secretKey")
        return found
    found = credentials_of(made(ClientSettings, {}, discovery.defaults(environ)), environ)
    if found is not None:
        return found
    if not environ.get(HOME_VARIABLE):
        return None
    tools = str(Path(environ[HOME_VARIABLE]) / TOOLS_FILE)
    return _read(tools, disk) if disk.exists(tools) else None


def _read(path: str, disk: Disk) -> Credentials | None:
    data = disk.read(path)
    if not path.endswith(YAML):
        return credentials_in(data, path)
    try:
        return tools_credentials(data.decode())
    except UnicodeDecodeError:
        raise UsageError(f"{path} must be text in UTF-8") from None
    except BadToolsFile as error:
        raise UsageError(f"{path}: {error}") from None
