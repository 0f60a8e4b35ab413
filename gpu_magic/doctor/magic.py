"""`%gpu_doctor`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.display import display

from gpu_magic.doctor.diagnosis import doctor
from gpu_magic.shell.arguments import read, refusal

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["GpuDoctorMagic"]


class GpuDoctorMagic:
    """The magic that shows what is wrong."""

    def __init__(self, shell: InteractiveShell) -> None:
        del shell

    def gpu_doctor(self, line: str) -> None:
        """Show what is wrong with the GPU set-up of this kernel, and the commands that fix it.

            %gpu_doctor   print the errors, what else is worth knowing, and the checks

        {options}

        The checks cover the driver and its libraries, the CUDA version that each framework is built for,
        `CUDA_VISIBLE_DEVICES`, what started CUDA, device files, the container, MIG, compute modes, your
        other processes, and the panel's packages. `%gpu_doctor` changes nothing, imports no framework and
        does not start CUDA.
        """
        options = read("%gpu_doctor", line)
        if options.request:
            raise refusal(f"%gpu_doctor takes no {options.request}. Its options are --report and --json.")
        if options.report and options.json:
            raise UsageError("--report does not go with --json. Use one of the two.")
        found = doctor()
        if options.report:
            print(found.report())
        elif options.json:
            print(json.dumps(found.to_dict(), indent=2))
        else:
            display(found)
