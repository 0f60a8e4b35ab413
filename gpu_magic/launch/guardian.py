"""The guardian: runs a command for the launching process, and ends all processes of the command.

After the command's end, the guardian ends the processes that the command has left running. The guardian ends
the command itself on request, and when the launching process has ended in any way. Ranks of torchrun have
separate sessions, and daemons lose their parents. They stay descendants of the guardian, because the guardian
is the "child subreaper" (Linux, prctl(2)). The guardian signals only its descendants.

The guardian itself can be killed. So it is the child of a keeper, which is also a subreaper. After the
guardian's end, the keeper kills what is left. After the keeper's end, the guardian ends the command. If both
are killed, Linux kills the command, but not the processes that the command has started.

An interpreter that reads no settings (`python -I -S`) runs this file by its path. It imports no module
that is written in Python, except `os`, so it starts in about 10 ms.

    guardian.py PARENT CONTROL REPORT LOGS LINGER COMMAND...

PARENT is the launching process's pid. CONTROL is a file descriptor to read from: `i` interrupts the command,
and `t` or the end of the file ends the command. REPORT is a file descriptor to write lines to, see `report`.
LOGS is a folder, which the guardian removes if the launching process has ended. LINGER is how many seconds
the command's other processes may run after the command's end. TERM also ends the command.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found] # `signal` takes 5 ms to make enums of its names
import os
import select
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# Seconds from an interrupt to TERM, and from TERM to KILL.
UNTIL_TERM = 2.0
UNTIL_KILL = 3.0
# Seconds between two checks of the remaining processes while the guardian ends them.
LOOK_AGAIN = 0.05


# A process: its pid, and its start in clock ticks since boot, because a later process can have the same pid.
Process = tuple[int, str]


def descendants(root: int) -> list[Process]:
    """Return all descendants of a process, without zombies."""
    children: dict[int, list[tuple[Process, bool]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (found := read_stat(int(entry))):
            state, parent, start = found
            children.setdefault(parent, []).append(((int(entry), start), state not in "ZX"))
    reached, parents = [], [root]
    while parents:
        for process, is_alive in children.get(parents.pop(), []):
            parents.append(process[0])
            if is_alive:
                reached.append(process)
    return reached


def read_stat(pid: int) -> tuple[str, int, str] | None:
    """Return a process's state, parent and start (Linux, proc_pid_stat(5)). None: it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), fields[19].decode()


def send(process: Process, number: int) -> None:
    """Send a signal to this process, but not to a later process with the same pid."""
    pid, start = process
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        found = read_stat(pid)
        if found and found[2] == start:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass
    finally:
        os.close(handle)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process (Linux, prctl(2))."""
    try:
        from _ctypes import call_function, dlopen, dlsym  # all that `ctypes` needs for it, without its 8 ms
    except ImportError:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    else:
        program = dlopen(None, os.RTLD_LAZY)  # type: ignore[arg-type] # as `ctypes.CDLL(None)` opens it
        call_function(dlsym(program, "prctl"), (option, value, 0, 0, 0))


def remove(folder: str) -> None:
    """Remove a folder, and ignore errors."""
    import shutil  # imported late, because it takes as long as all other imports

    shutil.rmtree(folder, ignore_errors=True)


class Guardian:
    """Runs a command, and ends it with all processes that it has started."""

    def __init__(self, words: list[str]) -> None:
        parent, control, report, self.logs, linger, *self.command = words
        self.control, self.report_to, self.linger = int(control), int(report), float(linger)
        os.set_inheritable(self.control, False)
        os.set_inheritable(self.report_to, False)
        self.child = 0
        self.status: int | None = None  # of the command, as `os.waitpid` returns it
        self.ended = 0.0  # when the command has ended
        self.is_ending = False
        self.signals: list[tuple[float, int]] = []  # when to send which signal
        self.parent = os.pidfd_open(int(parent))
        if int(parent) != os.getppid():
            raise ProcessLookupError

    def run(self) -> int:
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.end(signal.SIGTERM))
        signal.signal(signal.SIGHUP, lambda *_: self.end(signal.SIGTERM))
        self.start()
        # Not `select`, which accepts no descriptor above 1023. These have the launching process's numbers.
        watched = select.poll()
        for descriptor in (self.control, self.parent, woken):
            watched.register(descriptor, select.POLLIN)
        is_alone = False
        while self.is_anything_left():
            is_over = self.is_ending or self.status is not None
            ready = [found for found, _ in watched.poll(LOOK_AGAIN * 1000 if is_over else None)]
            if woken in ready:
                os.read(woken, 1024)
            if self.parent in ready:
                watched.unregister(self.parent)
                is_alone = True
                self.end(signal.SIGTERM)
            if self.control in ready:
                if asked := os.read(self.control, 1):
                    self.end(signal.SIGINT if asked == b"i" else signal.SIGTERM)
                    continue
                watched.unregister(self.control)
                is_alone = True  # a process closes its files before its pidfd shows its end
                self.end(signal.SIGTERM)
        self.report("gone")
        if is_alone:
            remove(self.logs)
        return os.waitstatus_to_exitcode(self.status or 0) & 0xFF

    def is_anything_left(self) -> bool:
        """Return whether a process of the command is left, and send the signals that are due."""
        if not self.reap():
            return False
        if self.status is not None and time.monotonic() >= self.ended + self.linger:
            self.end(signal.SIGTERM)
        if self.is_ending:
            self.send_due(descendants(os.getpid()))
        return True

    def start(self) -> None:
        self.report("starting")
        failed, fail = os.pipe()  # closed by a successful exec
        guardian = os.getpid()
        self.child = os.fork()
        if not self.child:
            try:
                # In a new process group, so that an interrupt reaches the whole group.
                os.setpgid(0, 0)
                for number in signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD:
                    signal.signal(number, signal.SIG_DFL)
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() == guardian:  # otherwise it has ended before the line above
                    os.execvp(self.command[0], self.command)  # noqa: S606
            except OSError as error:
                os.write(fail, str(error.errno).encode())
            finally:
                os._exit(127)
        os.close(fail)
        if errno := os.read(failed, 16).decode():
            self.report(f"failed {errno}")
            raise SystemExit(127)

    def reap(self) -> bool:
        """Reap ended processes: the command, and processes that have lost their parents.

        Return whether there are other processes. A reading of /proc can miss a process that starts meanwhile.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.child:
                self.status, self.ended = status, time.monotonic()
                self.report(f"exited {os.waitstatus_to_exitcode(status)}")

    def end(self, first: int) -> None:
        """Start to end all processes, first with this signal, unless that has started."""
        if self.is_ending:
            return
        self.is_ending = True
        now = time.monotonic()
        term = now + UNTIL_TERM if first == signal.SIGINT else now
        self.signals = [(term, signal.SIGTERM), (term + UNTIL_KILL, signal.SIGKILL)]
        if first == signal.SIGINT:
            # As Ctrl-C in a terminal does.
            try:
                os.killpg(self.child, signal.SIGINT)
            except OSError:
                pass

    def send_due(self, left: list[Process]) -> None:
        """Send due signals to the remaining processes. Repeat KILL for processes that have started since."""
        now = time.monotonic()
        while self.signals and now >= self.signals[0][0]:
            number = self.signals[0][1]
            for process in left:
                send(process, number)
            if number == signal.SIGKILL:
                return
            self.signals.pop(0)

    def report(self, line: str) -> None:
        """Write a line: `starting`, `failed ERRNO`, `exited CODE` (negative: by that signal), `gone`.

        `gone` is the last line: no process of the command is left.
        """
        try:
            os.write(self.report_to, f"{line}\n".encode())
        except OSError:
            pass  # the reader has ended


def keep(guardian: int, linger: float) -> None:
    """Wait for the guardian's end, and kill the processes that it has left, after `linger` seconds."""
    os.waitpid(guardian, 0)
    until = time.monotonic() + linger
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                for process in descendants(os.getpid()) if time.monotonic() >= until else ():
                    send(process, signal.SIGKILL)
                time.sleep(LOOK_AGAIN)
    except ChildProcessError:  # nothing is left
        return


def main() -> int:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts come through CONTROL
    try:
        guardian = Guardian(sys.argv[1:])
    except ProcessLookupError:  # the parent has already ended
        remove(sys.argv[4])
        return 1
    except OSError as error:  # Linux before 5.3 has no pidfds
        os.write(int(sys.argv[3]), f"failed {error.errno}\n".encode())
        return 1
    keeper = os.getpid()
    if child := os.fork():
        keep(child, guardian.linger)
        guardian.report("gone")
        return 0
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # a fork does not inherit it
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # If the keeper has ended before the line above, nothing is started.
    return guardian.run() if os.getppid() == keeper else 1


if __name__ == "__main__":
    code = main()
    os._exit(code)  # the interpreter's own end takes 4 ms, in both processes. Nothing is buffered
