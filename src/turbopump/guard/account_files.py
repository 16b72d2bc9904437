"""Files of accounts of 4.x: `plain_acl.yml` and every YAML file below `acl/`, read and written.

In: a directory. Out: the value of each file, by path, as `auth.accounts` reads it; and one changed file,
written again. YAML is read by the safe loader, so that no file can make an object of a class; by libyaml
where PyYAML has it, which takes 0.1 s instead of 0.37 for 1,000 accounts. So it is called in a thread.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from turbopump.guard.extra import extra
from turbopump.guard.faults import AccessFileFault
from turbopump.guard.private_files import replace_private
from turbopump.runtime.disk import Disk
from turbopump.runtime.secret_files import exposure

MAIN_FILE = "plain_acl.yml"
DIRECTORY = "acl"
TOOLS_FILE = "tools.yml"  # credentials of mqadmin, no accounts
SUFFIXES = (".yml", ".yaml")
MAX_FILES = 1_000
MAX_BYTES = 4 << 20  # of one file: about 40,000 accounts
MAX_DEPTH = 8  # of directories
MAX_NESTING = 16  # lists and maps in each other: libyaml's composer has no bound of its own and would crash


class AccountFiles:
    """The files of accounts below a directory."""

    def __init__(self, directory: str, disk: Disk, key: str = "aclEnable") -> None:
        """Raises ExtraMissing without PyYAML, which names the `key` that needs it."""
        self.main = f"{directory}/{MAIN_FILE}"
        self._directory = directory
        self._disk = disk
        self._yaml: Any = extra("yaml", key, "PyYAML")
        self._loader = getattr(self._yaml, "CSafeLoader", self._yaml.SafeLoader)
        self._dumper = getattr(self._yaml, "CSafeDumper", self._yaml.SafeDumper)

    def read(self) -> dict[str, bytes]:
        """Returns the contents of all files by path, the main one first. Raises AccessFileFault. Blocks."""
        try:
            found = {self.main: self._disk.read(self.main)} if self._disk.exists(self.main) else {}
            for path in self._below(f"{self._directory}/{DIRECTORY}", MAX_DEPTH):
                if len(found) >= MAX_FILES:
                    raise AccessFileFault(
                        f"{self._directory} must have at most {MAX_FILES} files of accounts"
                    )
                found[path] = self._disk.read(path)
        except OSError as error:
            raise AccessFileFault(f"cannot read the files of accounts: {error}") from None
        if not found:
            raise AccessFileFault(f"{self.main} does not exist")
        return found

    def parse(self, contents: Mapping[str, bytes]) -> dict[str, Any]:
        """Returns the value of each file. Raises AccessFileFault, which shows nothing of it. Blocks."""
        return {path: self._parsed(path, data) for path, data in contents.items()}

    def write(self, path: str, value: Any) -> bytes:
        """Replaces a file by a value; returns its new contents. Blocks."""
        text: str = self._yaml.dump(
            value, Dumper=self._dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
        )
        replace_private(self._disk, path, text.encode())
        return text.encode()

    def warnings(self, paths: Iterable[str]) -> list[str]:
        return [f"{path} {found}" for path in paths if (found := exposure(self._disk, path))]

    def _below(self, directory: str, depth: int) -> Iterator[str]:
        for entry in self._disk.entries(directory):
            path = f"{directory}/{entry.name}"
            if entry.is_dir and depth:
                yield from self._below(path, depth - 1)
            elif entry.name.endswith(SUFFIXES) and entry.name != TOOLS_FILE:
                yield path

    def _parsed(self, path: str, data: bytes) -> Any:
        if len(data) > MAX_BYTES:
            raise AccessFileFault(f"{path} must have at most {MAX_BYTES} bytes, got {len(data)}")
        try:
            if self._is_deep(data):
                raise AccessFileFault(f"{path} must have at most {MAX_NESTING} lists and maps in each other")
            return self._yaml.load(data, Loader=self._loader)
        except (self._yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            where = "" if mark is None else f" in line {mark.line + 1}"
            raise AccessFileFault(f"{path} is not YAML{where}") from None

    def _is_deep(self, data: bytes) -> bool:
        depth = 0
        for event in self._yaml.parse(data, Loader=self._loader):
            if isinstance(event, self._yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_NESTING:
                    return True
            elif isinstance(event, self._yaml.CollectionEndEvent):
                depth -= 1
        return False
