"""Builds the compiled twins (`src/turbopump/compiled`) into the wheel, or beside their source for an editable
install. Where that cannot be done, for want of a compiler or of Python's headers, the package is pure Python
and says so in one line. TURBOPUMP_PURE=1 asks for that.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("turbopump", "compiled")
NAME = "_twins" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so")
FLAGS = ("-std=c11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


class CompiledTwins(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get("TURBOPUMP_PURE", "0") not in ("", "0"):
            return
        source = Path(self.root, "src", PACKAGE)
        self._scratch = tempfile.TemporaryDirectory()
        target = source / NAME if version == "editable" else Path(self._scratch.name, NAME)
        trouble = compile_twins(source, target)
        if trouble:
            self.app.display_warning(f"turbopump: pure Python, sends cost five times as much ({trouble})")
        elif version != "editable":
            build_data["force_include"][str(target)] = str(PACKAGE / NAME)
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


def compile_twins(source: Path, target: Path) -> str | None:
    """What is wrong, in a line; None when the module was built. One that is in use stays whole."""
    linker = shlex.split(os.environ.get("LDSHARED") or sysconfig.get_config_var("LDSHARED") or "")
    if not linker:
        return f"no compiler is known on {sys.platform}"
    if compiler := os.environ.get("CC"):
        linker[:1] = shlex.split(compiler)
    new = target.with_suffix(f".{os.getpid()}")
    includes = [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
    command = [*linker, *FLAGS, *shlex.split(os.environ.get("CFLAGS", "")), *includes]
    command += [*map(str, sorted(source.glob("*.c"))), "-o", str(new)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return next((line for line in done.stderr.splitlines() if "error" in line), "cc failed")
        new.replace(target)
    except OSError as error:
        return str(error)
    finally:
        new.unlink(missing_ok=True)
    return None
