"""Searches for inputs that break a promise of one target, with atheris: `python -m tests.fuzzing.search NAME SECONDS`.

It goes on after the first. Of each place where one is broken the shortest input is kept, in build/fuzzing.
"""

from __future__ import annotations

import shutil
import sys
import traceback

import atheris

with atheris.instrument_imports(include=["gpu_magic"]):
    from tests.fuzzing.corpus import FOUND, PACKAGE, WORK, digest, kept_inputs
    from tests.fuzzing.targets import TARGETS

_LONGEST = 600  # bytes of an input
# Python's html.parser and argparse call patterns in ways that atheris's stand-ins for them do not have.
_WITHOUT_PATTERNS = ("names", "command-line")


class Search:
    """Is called with each input, and writes down the broken promises.

    Parameters
    ----------
    name
        The target's.

    """

    def __init__(self, name: str) -> None:
        self._check = TARGETS[name].check
        self._folder = WORK / name / FOUND
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._shortest: dict[str, int] = {}

    def __call__(self, data: bytes) -> None:
        try:
            self._check(data)
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:  # noqa: BLE001 - a SystemExit, too
            self._note(data, error)

    def _note(self, data: bytes, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        last = next((frame for frame in reversed(frames) if frame.filename.startswith(PACKAGE)), frames[-1])
        place = f"{type(error).__name__} in {last.filename}, line {last.lineno}"
        if isinstance(error, AssertionError):
            place += f": {str(error)[:40]}"
        if len(data) >= self._shortest.get(place, 1 << 30):
            return
        self._shortest[place] = len(data)
        name = digest(place.encode())
        (self._folder / name).write_bytes(data)
        (self._folder / f"{name}.txt").write_text(
            f"{place}\n  input: {data!r}\n" + "".join(traceback.format_exception(error)[-4:]),
            errors="replace",
        )


def main(name: str, seconds: str) -> None:
    """Search for so many seconds. Does not return: libFuzzer ends the process."""
    target, folder = TARGETS[name], WORK / name
    inputs = folder / "corpus"
    inputs.mkdir(parents=True, exist_ok=True)
    for data in [*(seed.encode() for seed in target.seeds), *kept_inputs(name).values()]:
        (inputs / digest(data)).write_bytes(data)
    words = [word.replace("\\", "\\\\").replace('"', '\\"') for word in target.words]
    (folder / "words").write_text("".join(f'"{word}"\n' for word in words))
    limits = [f"-max_total_time={seconds}", f"-max_len={_LONGEST}", "-timeout=120", "-rss_limit_mb=3000"]
    files = [f"-dict={folder / 'words'}", f"-artifact_prefix={folder / FOUND}/", str(inputs)]
    if name not in _WITHOUT_PATTERNS:
        atheris.enabled_hooks.add("RegEx")
    atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", *files], Search(name))
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
