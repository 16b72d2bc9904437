"""Where the key of stored secrets comes from: the configuration, a file, or one that is made once.

In: the configuration and the directory of the users. Out: the key, and warnings. A key file is never
written over.
"""

from turbopump.guard.cipher import new_key, parse_key
from turbopump.guard.config import AccessConfig
from turbopump.guard.faults import AccessFileFault
from turbopump.guard.private_files import read_file, replace_private
from turbopump.runtime.disk import Disk
from turbopump.runtime.secret_files import exposure

OWN_KEY_FILE = "users.key"


def key_of(config: AccessConfig, directory: str, disk: Disk) -> tuple[bytes, list[str]]:
    """Returns the key and what to warn of. Raises AccessFileFault. Blocks."""
    if config.secret_key:
        return parse_key(config.secret_key, "authKey"), []
    path = config.secret_key_file or f"{directory}/{OWN_KEY_FILE}"
    data = read_file(disk, path)
    warnings = []
    if data is None:
        if config.secret_key_file:
            raise AccessFileFault(f"authSecretKeyFile: {path} does not exist")
        data = new_key().encode()
        replace_private(disk, path, data)
        warnings.append(
            f"made {path}, which decrypts the secrets beside it: set authSecretKeyFile to a file elsewhere"
        )
    if found := exposure(disk, path):
        warnings.append(f"{path} {found}")
    try:
        return parse_key(data.decode("ascii", "replace"), path), warnings
    except ValueError as error:
        raise AccessFileFault(str(error)) from None
