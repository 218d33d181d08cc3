"""What tests ask the system about processes."""
import os
import pathlib
import signal
import time

# Signals that end a process which does not handle them: not glibc's own, not those that are ignored or that stop it.
FATAL = [number for number in range(1, 65) if number not in (32, 33) and number not in (
    signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)]


def wait_until(condition, seconds=30):
    """Looks again until it holds: for what only the system shows, such as the end of a process."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("did not happen in time")
        os.sched_yield()


def has_ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def marked(state):
    """Processes that were started with this state folder's coordinator, however far they moved."""
    mark = b"REGATTA_COORDINATOR=unix:" + str(state).encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes() and not has_ended(entry.name):
                found.append(int(entry.name))
        except OSError:
            pass
    return found
