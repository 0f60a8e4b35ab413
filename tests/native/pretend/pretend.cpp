// A pretend accelerator with four devices, in PyTorch's PrivateUse1 slot. Its memory is the host's and its
// kernels are the CPU's, but tensors, the current device and the generators know which device they belong to.
#include <torch/extension.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kCount = 4;
thread_local c10::DeviceIndex current = 0;  // per thread, as CUDA's is
// Until when each device works on what it was asked for, and how often somebody has waited for that.
std::array<std::chrono::steady_clock::time_point, kCount> busy_until;
std::array<int, kCount> waits;

c10::DeviceIndex checked(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < kCount, "pretend: invalid device ordinal ", int(index));
  return index;
}

// Keeps what is freed, as CUDA's does, until it is told to give it back; a device can be full, and an allocation
// can be told to fail.
struct Allocator final : c10::DeviceAllocator {
  struct Device {
    size_t allocated = 0, cached = 0, peak = 0, total = size_t(1) << 34, count = 0;
    std::unordered_multimap<size_t, void*> free;
  } devices[kCount];
  struct Block {
    size_t size;
    c10::DeviceIndex device;
  };
  std::unordered_map<void*, Block> blocks;
  std::mutex mutex;
  size_t until_failure = 0;  // 1: the next allocation fails; 0: none does

  c10::DataPtr allocate(size_t size) override {
    if (!size) return {nullptr, nullptr, &free, c10::Device(kType, current)};
    std::lock_guard<std::mutex> lock(mutex);
    auto& device = devices[current];
    const bool fails = until_failure && !--until_failure;
    TORCH_CHECK_WITH(OutOfMemoryError, !fails && device.allocated + size <= device.total,
                     "pretend out of memory. Tried to allocate ", size, " bytes.");
    auto found = device.free.find(size);
    void* data = found == device.free.end() ? std::malloc(size) : found->second;
    if (found != device.free.end()) device.free.erase(found), device.cached -= size;
    device.allocated += size, device.count++;
    device.peak = std::max(device.peak, device.allocated);
    blocks[data] = {size, current};
    return {data, data, &free, c10::Device(kType, current)};
  }
  static void free(void* data);
  void release(void* data) {
    std::lock_guard<std::mutex> lock(mutex);
    auto block = blocks.at(data);
    auto& device = devices[block.device];
    blocks.erase(data);
    device.allocated -= block.size, device.cached += block.size;
    device.free.emplace(block.size, data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, std::size_t size) const override { std::memcpy(to, from, size); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto& device : devices) {
      for (auto& [size, data] : device.free) std::free(data);
      device.free.clear(), device.cached = 0;
    }
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    auto& device = devices[checked(index)];
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = device.allocated, stats.allocated_bytes[0].peak = device.peak;
    stats.reserved_bytes[0].current = device.allocated + device.cached;
    stats.allocation[0].allocated = device.count;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { devices[checked(index)].count = 0; }
  void resetPeakStats(c10::DeviceIndex index) override {
    devices[checked(index)].peak = devices[index].allocated;
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    auto& device = devices[checked(index)];
    const auto used = device.allocated + device.cached;
    return {used < device.total ? device.total - used : 0, device.total};
  }
} allocator;

void Allocator::free(void* data) {
  if (data) allocator.release(data);
}

// Whether a tensor can take another device's memory for its own and stay the same object, as CUDA's can.
bool is_like_cuda = true;
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return is_like_cuda || self.key_set() == from.key_set();
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto old = getDevice();
    current = checked(device.index());
    return old;
  }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device device) const override { current = checked(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return getStream(stream.device()); }
  c10::DeviceIndex deviceCount() const noexcept override { return kCount; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    ++waits[checked(index)];
    std::this_thread::sleep_until(busy_until[index]);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Knows its device; the numbers come from a generator of the CPU's.
struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(c10::DeviceIndex index) : source(at::detail::createCPUGenerator()) {
    device_ = c10::Device(kType, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
  void set_current_seed(uint64_t seed) override { source.set_current_seed(seed); }
  uint64_t current_seed() const override { return source.current_seed(); }
  uint64_t seed() override { return source.seed(); }
  at::Generator source;
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kCount; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex index) const override { current = checked(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return std::exchange(current, checked(index));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(index < 0 ? current : index);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
} hooks;

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device && device->has_index() ? device : std::nullopt);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(device && device->has_index() ? device : std::nullopt);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// A tensor of the CPU's over the same memory.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (tensor.device().type() != kType) return tensor;
  auto same = at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), [tensor](void*) {},
                            tensor.options().device(c10::kCPU));
  same._set_conj(tensor.is_conj());
  same._set_neg(tensor.is_neg());
  return same;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(self));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  if (self.sizes() != to.sizes()) at::native::resize_(to, self.sizes());
  return copy_from(self, to, false);
}

// PyTorch asks for these two where a device has no convolution that it knows.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  auto cpu_bias = bias && bias->defined() ? std::make_optional(on_cpu(*bias)) : std::nullopt;
  return at::convolution(on_cpu(input), on_cpu(weight), cpu_bias, stride, padding, dilation, transposed,
                         output_padding, groups)
      .to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> mask) {
  auto [a, b, c] = at::convolution_backward(on_cpu(grad), on_cpu(input), on_cpu(weight),
                                            at::IntArrayRef{weight.size(0)}, stride, padding, dilation, transposed,
                                            output_padding, groups, mask);
  auto there = [&](const at::Tensor& one) { return one.defined() ? one.to(input.device()) : one; };
  return {there(a), there(b), there(c)};
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

// Everything else runs on the CPU; generators of another device are refused, as CUDA's kernels do.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto count = op.schema().arguments().size();
  for (auto value = stack->end() - count; value != stack->end(); ++value) {
    if (!value->isGenerator()) continue;
    auto generator = value->toGenerator();
    TORCH_CHECK(generator.device().type() == kType,
                "Expected a 'pretend' device type for generator but found '", generator.device().type(), "'");
    *value = static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->source;
  }
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("view", view);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  m.impl("resize_", torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// Enough to make a sparse tensor, and to take it apart again.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", at::native::new_with_dims_and_tensor_sparse_symint);
  m.impl("_indices", at::native::_indices_sparse);
  m.impl("_values", at::native::_values_sparse);
  m.impl("_nnz", at::native::_nnz_sparse);
  m.impl("_coalesced_", at::native::_coalesced_sparse_);
  m.impl("is_coalesced", at::native::is_coalesced_sparse);
  m.impl("sparse_dim", at::native::sparse_dim_sparse);
  m.impl("dense_dim", at::native::dense_dim_sparse);
}

// Asked of the tensor that takes the memory, which can be the CPU's.
TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  c10::SetAllocator(kType, &allocator);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  m.def("current", [] { return int(current); });
  m.def("fail_after", [](size_t count) { allocator.until_failure = count; });
  m.def("set_total", [](int index, size_t bytes) { allocator.devices[checked(index)].total = bytes; });
  m.def("be_like_cuda", [](bool is) { is_like_cuda = is; });
  m.def("work", [](int index, double seconds) {
    auto span = std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
    busy_until[checked(index)] = std::chrono::steady_clock::now() + span;
  });
  m.def("waits", [] { return waits; });
  m.def("set_current", [](int index) { current = checked(static_cast<c10::DeviceIndex>(index)); });
}
