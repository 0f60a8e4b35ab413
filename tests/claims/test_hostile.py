"""What other users can do to the folder of claims, and what they can't."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

from gpu_magic.claims.held import Claims
from tests.claims.holders import GPU, OTHER, STAYS, as_nobody, end, holder
from tests.processes import needs_root, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

pytestmark = needs_root
NAME = f"{GPU}.{'0' * 16}"


def test_users_see_each_others_claims_and_can_not_end_them(open_folder: Path) -> None:
    ours = Claims()
    ours.hold([GPU])
    code = (
        "print(Claims().others())\n"
        "folder = os.environ['GPU_MAGIC_CLAIMS']\n"
        "for name in os.listdir(folder):\n"
        "    for act in os.unlink, (lambda path: os.rename(path, path + 'x')), (lambda path: open(path, 'w')):\n"
        "        try:\n"
        "            act(os.path.join(folder, name)); print('it could')\n"
        "        except PermissionError:\n"
        "            pass"
    )
    seen = as_nobody(code, open_folder)
    assert "owner='root'" in seen
    assert f"pid={os.getpid()}" in seen
    assert "it could" not in seen
    ours.release()


def test_what_another_user_puts_there_is_not_followed_and_not_believed(
    open_folder: Path, tmp_path: Path
) -> None:
    with holder(OTHER):  # makes the folder
        pass
    secret = tmp_path / "secret"
    secret.write_text(f"{GPU}\nprivate")
    name = f"{GPU}.{'0' * 16}"
    kept = secret.open("r+")
    fcntl.lockf(kept, fcntl.LOCK_EX)  # so that it would pass for a claim
    as_nobody(
        f"os.chdir(os.environ['GPU_MAGIC_CLAIMS'])\n"
        f"os.symlink({str(secret)!r}, {name!r})\n"
        f"os.mkfifo({name.replace('0' * 16, '1' * 16)!r})\n"
        f"os.mkdir({name.replace('0' * 16, '2' * 16)!r})\n"
        f"open({name.replace('0' * 16, '3' * 16)!r}, 'wb').write(b'\\xff' * 100000)\n"
        "open('GPU-\\n\\x1b[31m.0000000000000000', 'w')",
        open_folder,
    )
    code = "import os\nos.environ['GPU_MAGIC_CLAIMS'] = sys.argv[1]\n"
    code += "from gpu_magic.claims.held import Claims\nprint(Claims().others())"
    # In a process that would see the lock as another one's.
    seen = subprocess.check_output([sys.executable, "-c", f"import sys\n{code}", open_folder], text=True)
    assert seen == "{}\n"
    assert secret.read_text() == f"{GPU}\nprivate"
    kept.close()


def test_a_notebook_s_name_is_shown_and_no_more(open_folder: Path) -> None:
    Claims().others()
    with holder(GPU, JPY_SESSION_NAME="\x1b[31m" + "evil" * 100) as _:
        (claim,) = Claims().others()[GPU]
    assert claim.notebook.isprintable()
    assert len(claim.notebook) == 60
    assert open_folder.exists()


def test_no_time_that_a_user_can_set_breaks_others(open_folder: Path) -> None:
    with holder(GPU):
        (file,) = open_folder.iterdir()
        os.utime(file, (2**60, 2**60))
        (claim,) = Claims().others()[GPU]
    assert "since" in str(claim)
    assert abs(claim.since - file.parent.stat().st_ctime) < 600


def test_another_user_s_lock_keeps_no_claim_alive(open_folder: Path) -> None:
    with holder(GPU) as pid:
        (file,) = open_folder.iterdir()
        code = f"import fcntl, os, time\nfile = os.open({str(file)!r}, os.O_RDONLY)\n"
        code += "print(1, flush=True)\nfcntl.lockf(file, fcntl.LOCK_SH)\ntime.sleep(600)"
        with subprocess.Popen(
            [sys.executable, "-c", f"import os\nos.setuid(65534)\n{code}"], stdout=subprocess.PIPE
        ) as waiting:
            assert waiting.stdout is not None
            waiting.stdout.readline()
            end(pid)
            until(lambda: Claims().others() == {})
            waiting.kill()


def test_a_folder_that_somebody_else_has_made_for_other_things_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", str(home))
    assert "is not open to all users" in Claims().hold([GPU])
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_many_files_of_one_user_hide_no_claim_of_another(open_folder: Path) -> None:
    with holder(OTHER):
        as_nobody(
            "os.chdir(os.environ['GPU_MAGIC_CLAIMS'])\n"
            "for number in range(5000):\n"
            f"    open(f'{GPU}.{{number:016x}}', 'w').close()\n"
            "    open(f'x{number}', 'w').close()",
            open_folder,
        )
        assert list(Claims().others()) == [OTHER]


def test_another_name_for_a_claim_is_no_claim_and_hides_none(open_folder: Path) -> None:
    with holder(GPU):
        (file,) = open_folder.iterdir()
        os.link(file, open_folder / f"{OTHER}.{'0' * 16}")
        assert list(Claims().others()) == [GPU]


def test_a_file_that_others_can_write_is_no_claim(open_folder: Path) -> None:
    with holder(GPU):
        (file,) = open_folder.iterdir()
        file.chmod(0o666)
        assert Claims().others() == {}


def test_a_folder_whose_owner_closes_it_again_and_again_keeps_nobody(open_folder: Path) -> None:
    closing = (
        "folder = os.environ['GPU_MAGIC_CLAIMS']\nos.mkdir(folder)\n"
        "import threading\n"
        "def close():\n    while True:\n        os.chmod(folder, 0o700); os.chmod(folder, 0o701)\n"
        "threading.Thread(target=close, daemon=True).start()\n"
    )
    pid = int(as_nobody(closing + STAYS, open_folder))
    try:
        claims = Claims()
        assert claims.others() == {}
        assert "is not open to all users" in claims.hold([GPU]) or "can't be opened" in claims.hold([GPU])
    finally:
        end(pid)
