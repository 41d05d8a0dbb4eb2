"""Programs in processes of their own, with the tfdb of this checkout wherever they run."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def run(
    *arguments: Any, typed: str = "", cwd: Path = ROOT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments, `typed` on its standard input; what does not end by itself is ended."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        input=typed,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**environment(), **(env or {})},
        timeout=300,
    )


def interrupted(path: Path, options: list[str], typed: str, wait: float = 0.5) -> tuple[str, int]:
    """Run a program under tfdb, interrupt it so many seconds after it has printed `running`; its output and status."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "tfdb", *options, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env=environment(),
    ) as process:
        late = threading.Timer(120, process.kill)
        late.start()
        try:
            return talk(process, typed, wait), process.wait(timeout=60)
        finally:
            late.cancel()


def talk(process: "subprocess.Popen[str]", typed: str, wait: float) -> str:
    """Type to the process, interrupt it, and read all that it prints."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(typed)
    process.stdin.close()
    shown = ""
    for line in process.stdout:
        shown += line
        if line.endswith("running\n"):
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
    return shown
