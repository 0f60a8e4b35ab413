"""How much memory was asked for, in the words of each framework's error."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_magic.frameworks.base import shortage_in, wanted_in
from tests.inputs import LONG

# As PyTorch 2.13, XLA and CuPy 13 write them.
TEXTS = {
    "CUDA out of memory. Tried to allocate 20.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which 15.25 GiB "
    "is free.": 20.5 * (1 << 30),
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.": 1 << 33,
    "Out of memory allocating 1,024 bytes (allocated so far: 0 bytes).": 1024,
    "OOM when allocating tensor with shape[100000,100000] and type float on /device:GPU:0": None,
}


@pytest.mark.parametrize("text", TEXTS)
def test_what_was_asked_for_is_read(text: str) -> None:
    assert wanted_in(text) == TEXTS[text]


@pytest.mark.parametrize(
    ("text", "is_certain"),
    [
        ("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", True),
        ("CUDA driver error: out of memory", True),
        ("HIP error: out of memory", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("cuFFT error: CUFFT_ALLOC_FAILED", True),
        ("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`", True),
        ("CUDA error: resource allocation failed when calling `cusparseCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", True),
        (
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
            True,
        ),
        ("Last error:\nCuda failure 'out of memory'", True),
        ("Triton Error [CUDA]: out of memory", True),
        ("cudaErrorMemoryAllocation: out of memory", True),  # CuPy
        ("INTERNAL: Failed to load in-memory CUBIN: CUDA_ERROR_OUT_OF_MEMORY: out of memory", True),  # JAX
        ("[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", True),  # Numba
        (
            "std::bad_alloc: out_of_memory: CUDA error at: device.hpp: cudaErrorMemoryAllocation",
            True,
        ),  # RAPIDS
        # In a text of another process, without the framework's own error.
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", True),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.", True),
        ("Out of memory allocating 1,024 bytes (allocated so far: 0 bytes).", True),
        ("cudaMalloc failed: out of memory", True),
        ("cuRAND error: CURAND_STATUS_ALLOCATION_FAILED", True),
        ("cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`", False),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", False),
        ("cuFFT error: CUFFT_INTERNAL_ERROR", False),
        ("GET was unable to find an engine to execute this computation", False),
        (
            "ncclUnhandledCudaError: Call to CUDA function failed.\nFailed to CUDA calloc async 608 bytes",
            False,
        ),
        ("FAILED_PRECONDITION: DNN library initialization failed.", False),
        ("Failed to allocate memory for requested buffer of size 1073741824", False),
        ("Engine core initialization failed. See root cause above.", False),
        # In an error of another type: of a worker, of a compiler, of code that wraps PyTorch.
        ("Caught OutOfMemoryError in DataLoader worker process 0.\nCUDA out of memory. Tried to", True),
        ("HIP out of memory. Tried to allocate 2.00 GiB.", True),
        ("CUDA failure 2: out of memory ; GPU=0 ; hostname=h ; expr=cudaMalloc(&p, size);", True),  # ONNX
        ("[CUDA] out of memory /tmp/LightGBM/src/cuda/cuda_utils.cpp 33", True),
        ("Error Code 1: Cuda Runtime (out of memory)", True),  # TensorRT
        ("dev 0 space Device size 1610612736 bytes (cudaMalloc error out of memory [2])", True),  # faiss
        ("Failed to allocate 400000000000 bytes on device 'cuda:0'", True),  # Warp
        (
            "Free memory on device cuda:0 (10.2/79.15 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 71.24 GiB).",
            True,
        ),  # vLLM
        ("No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", False),
        ("Last error:\nFailed to CUDA calloc async 608 bytes", False),  # NCCL
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", False),
        ("CUDA error: insufficient resources when calling `cusparseSpGEMM_workEstimation(…)`", False),
        ("jaxlib/gpu/solver_handle_pool.cc:37: operation gpusolverDnCreate(&handle) failed", False),
        ("Dst tensor is not initialized.", False),
        ("CUDA error: device-side assert triggered", None),
        ("out of resource: shared memory, Required: 196608, Hardware limit: 166912", None),  # Triton
        ("std::bad_alloc", None),
        ("RESOURCE_EXHAUSTED: received message larger than max", None),  # gRPC
        ("CUDA error: device-side assert triggered\nThe host is not out of memory", None),
        ("DefaultCPUAllocator: can't allocate memory. Error code 12 (Cannot allocate memory)", None),
        ("CUDA is not available here.\nThe host is out of memory", None),
        ("this ship is out of memory", None),
    ],
)
def test_messages_of_cuda_s_libraries_are_known(text: str, is_certain: bool | None) -> None:
    found = shortage_in(text)
    assert (None if found is None else found.is_certain) is is_certain


@given(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["allocate ", "allocating ", "Tried to allocate ", ""]),
        st.from_regex(r"\A[0-9.,]{0,30}\Z"),
        st.sampled_from([" bytes", "KiB", " GiB", "TiB", ""]),
    )
)
@example("allocate ,TiB")
@example(f"allocating {'9' * 400} bytes")
@example(f"allocating {'9' * LONG} bytes")
def test_any_text_asks_for_a_number_of_bytes_or_for_none(text: str) -> None:
    wanted = wanted_in(text)
    assert wanted is None or (type(wanted) is int and wanted >= 0)
