"""What GPU_MAGIC_SIMULATE, NVIDIA's kernel module and other users' command lines can hold."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

import gpu_magic
from gpu_magic.devices.binding import list_gpus
from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.processes import _python_program, name_text, read_python_line
from gpu_magic.devices.simulated import ensure, leave
from gpu_magic.errors import SimulationError
from tests.inputs import LONG, ODD, check_line, check_refusal

PROFILE = st.lists(
    st.sampled_from(
        "8xA100-80GB 2x RTX-4090 T4 + (3g.40gb,4g.40gb) 1g.10gb seed=3 clock=0 own=0:12GiB:60 0x , = x 7".split()
    )
    | ODD,
    max_size=5,
)


@given(PROFILE.map("".join) | PROFILE.map(" ".join))
@example("8xA100-80GB seed=3 clock=0")
@example("2xT4 own=1:2GiB:100")
@example("9" * LONG)
@example(f"{'9' * LONG}xT4")
def test_a_simulated_machine_can_be_read_or_is_refused(text: str) -> None:
    try:
        try:
            ensure(text.replace("\0", ""))
            gpus = gpu_magic.gpus()
        finally:
            leave()
    except SimulationError as error:
        check_refusal(error)
        return
    if gpus.simulated:
        check_line(gpus.simulated)
    assert len(gpus) <= 256


@given(
    st.lists(
        st.sampled_from(
            ["Model:", "GPU UUID:", "Device Minor:", "GPU Excluded:", "No", "Yes", "\t", "\n", " 0", "GPU-"]
        )
        | ODD
        | st.text(max_size=50)
    ).map("".join)
)
@example("Device Minor: \0 0\n")
@example(
    "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-8f3a0000-0000-4000-8000-000000000001\nDevice Minor: \t 0\n"
)
def test_what_the_kernel_module_says_of_a_gpu(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gpu = Path(folder) / "proc/driver/nvidia/gpus/0000:07:00.0"
        gpu.mkdir(parents=True)
        (Path(folder) / "dev").mkdir()
        (Path(folder) / "dev/nvidia0").touch()
        (gpu / "information").write_bytes(text.encode(errors="surrogateescape"))
        for found in list_gpus(Path(folder)):
            assert found.uuid is UNKNOWN or len(found.uuid) == 40
            assert found.index == 0


@given(
    st.lists(
        st.sampled_from(
            "-c -m -I -Ic -X -W --version --check-hash-based-pycs ipykernel_launcher /home/m/train.py / - -- secret".split()
        )
        | ODD
        | st.text(max_size=90),
        max_size=6,
    )
)
@example(["python", "-Ic", "import secret"])
@example(["python", "-X", "dev", "a.py"])
def test_a_command_line_of_another_user_is_short(words: list[str]) -> None:
    line = read_python_line(words)
    assert 0 <= line.options <= len(words)
    assert line.kind in ("", "script", "module", "code")
    shown = name_text(_python_program(words))
    assert shown.isprintable()
    assert len(shown) <= 40


@given(st.lists(st.sampled_from(["-I", "-u", "-Xdev", "-W"])), st.sampled_from(["-c", "-Ic"]), st.text())
def test_code_that_somebody_has_typed_is_shown_to_nobody(options: list[str], flag: str, code: str) -> None:
    words = [word for option in options for word in (["-W", "error"] if option == "-W" else [option])]
    assert name_text(_python_program(["python", *words, flag, code])) == "python"
