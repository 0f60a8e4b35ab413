"""What other users can do to the folder of claims, and what they can't."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gpu_magic.claims.held import Claims
from tests.claims.holders import GPU, OTHER, end, holder, stranger
from tests.processes import needs_root

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_root

CHANGES = """if True:
    could = []
    for name in os.listdir():
        for act in os.unlink, (lambda path: os.rename(path, path + 'x')), (lambda path: open(path, 'w')):
            try:
                could.append(act(name))
            except PermissionError:
                pass
"""
PUTS = f"""if True:
    name = '{GPU}.{"0" * 15}'
    os.symlink(secret, name + '0')
    os.mkfifo(name + '1')
    os.mkdir(name + '2')
    open(name + '3', 'wb').write(b'\\xff' * 100000)
    open('GPU-\\n\\x1b[31m.0000000000000000', 'w')
    for number in range(5000):  # so many that another user's are not looked at any more
        open(f'{GPU}.{{number:x}}'.ljust(len(name) + 1, 'f'), 'w').close()
        open(f'x{{number}}', 'w').close()
"""
CLOSES = """if True:
    os.mkdir(folder)
    def close():
        while True:
            os.chmod(folder, 0o700); os.chmod(folder, 0o701)
    threading.Thread(target=close, daemon=True).start()
"""


def test_users_see_each_others_claims_and_can_not_end_them(folder: Path) -> None:
    ours = Claims()
    ours.hold([GPU])
    with stranger("nobody") as one:
        assert one.run(f"claims.others()[{GPU!r}][0].owner") == "root"
        assert one.run(f"claims.others()[{GPU!r}][0].pid") == os.getpid()
        one.run(f"os.chdir({str(folder)!r})\n{CHANGES}")
        assert one.run("could") == []
    ours.release()


def test_what_another_user_puts_there_is_not_followed_not_believed_and_hides_nothing(
    folder: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{GPU}\nprivate")
    with holder(OTHER), stranger() as locking, stranger("nobody") as one:
        # So that it would pass for a claim.
        locking.run(f"file = open({str(secret)!r}, 'r+'); fcntl.lockf(file, fcntl.LOCK_EX)")
        one.run(f"os.chdir({str(folder)!r}); secret = {str(secret)!r}\n{PUTS}")
        assert list(Claims().others()) == [OTHER]
    assert secret.read_text() == f"{GPU}\nprivate"


def test_files_that_are_too_many_are_not_looked_at_again(folder: Path, tmp_path: Path) -> None:
    calls: list[object] = []
    with holder(OTHER), stranger("nobody") as one:
        one.run(f"os.chdir({str(folder)!r}); secret = {str(tmp_path)!r}\n{PUTS}")
        Claims().others()
        sys.setprofile(lambda _, event, called: calls.append(called) if event == "c_call" else None)
        seen = Claims().others()
        sys.setprofile(None)
        assert list(seen) == [OTHER]
        assert calls.count(os.stat) < 1100
        one.run(f"[os.unlink(each) for each in os.listdir() if each[:40] == {GPU!r} and each[-1] == 'f']")
        one.run(f"claims.hold([{GPU!r}])")
        assert sorted(Claims().others()) == [GPU, OTHER]


def test_a_notebook_s_name_is_shown_and_no_more() -> None:
    with holder(GPU, JPY_SESSION_NAME="\x1b[31m" + "evil" * 100):
        (claim,) = Claims().others()[GPU]
    assert claim.notebook.isprintable()
    assert len(claim.notebook) == 60


def test_a_container_s_name_is_shown_and_no_more(folder: Path) -> None:
    with holder(GPU):
        (file,) = folder.iterdir()
        file.write_text(f"{GPU}\ntrain.ipynb\n\n1 \x1b[31m{'evil' * 100}\n")
        (claim,) = Claims().others()[GPU]
    assert claim.container.isprintable()
    assert len(claim.container) == 60


def test_what_an_owner_does_to_the_file_of_a_claim_misleads_nobody(folder: Path) -> None:
    with holder(GPU):
        (file,) = folder.iterdir()
        os.utime(file, (2**60, 2**60))
        (claim,) = Claims().others()[GPU]
        assert "since" in str(claim)
        assert abs(claim.since - folder.stat().st_ctime) < 600
        os.link(file, folder / f"{OTHER}.{'0' * 16}")
        assert list(Claims().others()) == [GPU]
        file.chmod(0o666)  # others can write what it says
        assert Claims().others() == {}


def test_another_user_s_lock_keeps_no_claim_alive(folder: Path) -> None:
    with stranger("nobody") as one, holder(GPU) as pid:
        (file,) = folder.iterdir()
        one.run(f"file = os.open({str(file)!r}, os.O_RDONLY)")
        end(pid)
        one.run("fcntl.lockf(file, fcntl.LOCK_SH)")
        assert Claims().others() == {}


def test_a_folder_whose_owner_closes_it_again_and_again_keeps_nobody(folder: Path) -> None:
    with stranger("nobody") as one:
        one.run(f"folder = {str(folder)!r}\n{CLOSES}")
        claims = Claims()
        assert claims.others() == {}
        problem = claims.hold([GPU])
        assert "is not open to all users" in problem or "cannot be opened" in problem
