"""What runs functions of tests, started by `tests/programs/runner.py`.

``python -m tests.programs serve FRAMEWORK...`` imports the frameworks once. For each request, a line of JSON on its
standard input, it forks a process that runs the program, and answers with a line of JSON. It ends with its input.

``python -m tests.programs once REQUEST FILE`` runs one program in this process, which has imported nothing, and writes
what it returned to the file.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def run(request: dict, answer: int) -> int:
    """Run a program, write what it returns to a file descriptor, and return the exit status."""
    import faulthandler
    import json
    import os
    import traceback
    import types

    from tests.programs.needed import needed

    faulthandler.enable()
    # Only a program that hangs comes to it; its stack is in the report then.
    faulthandler.dump_traceback_later(request["limit"], exit=True)
    # As in a notebook and after `python -c`, the user's own module is called so and has no file.
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        os.environ.update(request.get("environment", {}))
        with open(request["file"], encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes its time
            part = needed(file.read(), request["function"])
        exec(compile(part, request["file"], "exec", dont_inherit=True), vars(main))
        found = vars(main)[request["function"]](*request["arguments"])
        # `devices_of` returns a mapping; devices, dtypes and the like are given by their names.
        found = json.dumps(found, default=lambda one: dict(one) if hasattr(one, "keys") else str(one))
        os.write(answer, found.encode())
    except BaseException as error:  # noqa: BLE001 - the test fails with it
        frames = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, frames)
        return 1
    return 0


def serve(frameworks: list[str]) -> int:
    """Answer requests; return the exit status, in a forked process that of its program."""
    import gc
    import json
    import os
    import select
    import signal
    import tempfile
    from importlib import import_module

    replies = os.dup(1)
    os.dup2(2, 1)  # what is printed while frameworks are imported is no reply
    for name in ("gpu_magic.gpus.choose", "gpu_magic.on_gpu.block", "gpu_magic.move.move", *frameworks):
        import_module(name)
    gc.collect()
    gc.freeze()  # a program's own gc.collect() has only its own objects to look at

    while line := sys.stdin.buffer.readline():
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as answer:
            child = os.fork()
            if not child:
                os.setpgid(0, 0)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                os.close(replies)
                request = json.loads(line)
                status = run(request, os.dup(answer.fileno()))
                if request["finalize"]:
                    return status
                leave(status)
            ended = os.pidfd_open(child)
            readable, _, _ = select.select([0, ended], [], [])
            if ended not in readable:  # our input has ended, or the test was given up
                os.killpg(child, signal.SIGKILL)
                return 1
            os.close(ended)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            answer.seek(0)
            reply = {
                "status": status,
                "answer": answer.read().decode(),
                "output": output.read().decode(errors="replace"),
            }
            os.write(replies, json.dumps(reply).encode() + b"\n")
    return 0


def leave(status: int) -> NoReturn:
    """End a forked process as a program ends, without the half second in which Python takes itself apart."""
    import atexit
    import os
    import threading

    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> int:
    """Do what the command line says."""
    if sys.argv[1] == "serve":
        return serve(sys.argv[2:])
    import json
    import os

    return run(json.loads(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY))


if __name__ == "__main__":
    sys.exit(main())
