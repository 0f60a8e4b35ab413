# The only list of the public names and their modules. Type checkers read it. At run time, `__getattr__` in
# __init__.py reads it (as in SPEC 1, "Lazy loading of submodules and functions").

from IPython.core.interactiveshell import InteractiveShell

from gpu_magic.cluster.cluster import Cluster as Cluster
from gpu_magic.cluster.cluster import Engine as Engine
from gpu_magic.cluster.use import cluster as cluster
from gpu_magic.cluster.use import map as map  # noqa: A004 - it is `gpu_magic.map`
from gpu_magic.devices.model import UNKNOWN as UNKNOWN
from gpu_magic.devices.model import Claim as Claim
from gpu_magic.devices.model import Gpu as Gpu
from gpu_magic.devices.model import GpuProcess as GpuProcess
from gpu_magic.devices.model import GpuStatus as GpuStatus
from gpu_magic.devices.model import Inventory as Inventory
from gpu_magic.devices.model import MigInstance as MigInstance
from gpu_magic.doctor.diagnosis import Diagnosis as Diagnosis
from gpu_magic.doctor.diagnosis import doctor as doctor
from gpu_magic.doctor.facts import Finding as Finding
from gpu_magic.errors import BindingError as BindingError
from gpu_magic.errors import CallFailed as CallFailed
from gpu_magic.errors import ChoiceError as ChoiceError
from gpu_magic.errors import ClusterError as ClusterError
from gpu_magic.errors import CommandFailed as CommandFailed
from gpu_magic.errors import CudaInitializedError as CudaInitializedError
from gpu_magic.errors import CudaInitializedWarning as CudaInitializedWarning
from gpu_magic.errors import FitError as FitError
from gpu_magic.errors import GpuMagicError as GpuMagicError
from gpu_magic.errors import KernelRestarting as KernelRestarting
from gpu_magic.errors import LaunchError as LaunchError
from gpu_magic.errors import MeasurementError as MeasurementError
from gpu_magic.errors import NotFreeError as NotFreeError
from gpu_magic.errors import PlacementError as PlacementError
from gpu_magic.errors import PlacementWarning as PlacementWarning
from gpu_magic.errors import ProcessError as ProcessError
from gpu_magic.errors import SimulationError as SimulationError
from gpu_magic.fit.fit import Fit as Fit
from gpu_magic.fit.fit import fit as fit
from gpu_magic.gpus.choice import Choice as Choice
from gpu_magic.gpus.choose import choose as choose
from gpu_magic.gpus.choose import guard as guard
from gpu_magic.gpus.choose import wait_for as wait_for
from gpu_magic.gpus.table import Gpus as Gpus
from gpu_magic.gpus.table import gpus as gpus
from gpu_magic.launch.launch import launch as launch
from gpu_magic.launch.launch import tasks as tasks
from gpu_magic.launch.task import Task as Task
from gpu_magic.measure.record import CellUsage as CellUsage
from gpu_magic.measure.record import GpuUsage as GpuUsage
from gpu_magic.measure.record import History as History
from gpu_magic.measure.recorder import GpuTime as GpuTime
from gpu_magic.measure.recorder import gpu_time as gpu_time
from gpu_magic.measure.recorder import history as history
from gpu_magic.move.move import to_cpu as to_cpu
from gpu_magic.move.move import to_gpu as to_gpu
from gpu_magic.objects.memory import Freed as Freed
from gpu_magic.objects.memory import gpu_free as gpu_free
from gpu_magic.objects.where import Devices as Devices
from gpu_magic.objects.where import devices_of as devices_of
from gpu_magic.on_gpu.block import OnGpu as OnGpu
from gpu_magic.on_gpu.block import on_gpu as on_gpu
from gpu_magic.panel.widget import panel as panel
from gpu_magic.park.park import Parking as Parking
from gpu_magic.park.park import park as park
from gpu_magic.park.unpark import unpark as unpark
from gpu_magic.process.guard import Guard as Guard
from gpu_magic.processes.processes import OwnProcess as OwnProcess
from gpu_magic.processes.processes import OwnProcesses as OwnProcesses
from gpu_magic.processes.processes import end_process as end_process
from gpu_magic.processes.processes import my_processes as my_processes
from gpu_magic.processes.tasks import BackgroundTask as BackgroundTask

__version__: str

def load_ipython_extension(shell: InteractiveShell) -> None: ...
def unload_ipython_extension(shell: InteractiveShell) -> None: ...
