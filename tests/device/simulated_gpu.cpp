// A CUDA device in host memory, for a CPU-only build of PyTorch.
//
// Registers with torch's dispatcher what libtorch_cuda would: hooks, device guard, allocators,
// generator, and for every operator of the CUDA key one boxed kernel, which checks devices like a
// CUDA kernel, runs the CPU kernel on aliases of the same memory and returns CUDA tensors. All above
// the dispatch key is torch's own and unchanged: autograd, autocast, `.numpy()`, torch.save, optimisers.
// Fresh memory is filled with 0xFF: NaN in floats, -1 in integers.
//
// simulated_gpu.py builds and loads it. SIMULATED_GPUS is the number of devices;
// SIMULATED_GPU_RANDOM=cpu draws the random numbers that a CPU generator of the same seed would.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace simulated {

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::DispatchKeySet;
using c10::IValue;

constexpr auto CUDA = c10::DeviceType::CUDA;
constexpr auto CPU = c10::DeviceType::CPU;
const DispatchKeySet cuda_key(c10::DispatchKey::CUDA);

thread_local DeviceIndex current = 0;

DeviceIndex num_devices() {
  static const char* text = std::getenv("SIMULATED_GPUS");
  static const auto n = static_cast<DeviceIndex>(text ? std::atoi(text) : 1);
  return n;
}

// Events: kind is launch, sync, upload, download, async upload or async download.
using Listener = void (*)(const char* kind, const char* what, int64_t bytes);
std::atomic<Listener> listener{nullptr};

void tell(const char* kind, const std::string& what, int64_t bytes = 0) {
  if (auto f = listener.load()) f(kind, what.c_str(), bytes);
}

// Memory

std::atomic<int64_t> live_bytes{0}, peak_bytes{0};

void count_memory(int64_t bytes) {
  int64_t now = live_bytes += bytes, peak = peak_bytes.load();
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {}
}

struct DeviceAllocator final : c10::Allocator {
  struct Block { void* data; int64_t size; };
  c10::DataPtr allocate(size_t n) override {
    void* data = nullptr;
    TORCH_CHECK(n == 0 || posix_memalign(&data, 64, n) == 0, "CUDA out of memory (simulated)");
    if (n) std::memset(data, 0xFF, n);
    count_memory(n);
    return {data, new Block{data, static_cast<int64_t>(n)}, &release, Device(CUDA, current)};
  }
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    count_memory(-block->size);
    std::free(block->data);
    delete block;
  }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
} device_allocator;

std::mutex pinned_mutex;
std::map<const char*, size_t> pinned;  // start and size of each block

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    void* data = nullptr;
    TORCH_CHECK(n == 0 || posix_memalign(&data, 64, n) == 0, "no memory to pin (simulated)");
    std::lock_guard guard(pinned_mutex);
    if (n) pinned[static_cast<char*>(data)] = n;
    return {data, data, &release, Device(CPU)};
  }
  static void release(void* data) {
    std::lock_guard guard(pinned_mutex);
    pinned.erase(static_cast<char*>(data));
    std::free(data);
  }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
} pinned_allocator;

bool is_pinned(const void* pointer) {
  const auto* data = static_cast<const char*>(pointer);
  std::lock_guard guard(pinned_mutex);
  auto after = pinned.upper_bound(data);
  return after != pinned.begin() && data < std::prev(after)->first + std::prev(after)->second;
}

// Random numbers: like CUDA's Philox generator it has 16 bytes of state, a seed and an offset

struct Generator final : c10::GeneratorImpl {
  explicit Generator(DeviceIndex index) : c10::GeneratorImpl(Device(CUDA, index), cuda_key) {}
  void set_current_seed(uint64_t seed) override { set(seed, 0); }
  void set_offset(uint64_t offset) override { set(seed_, offset); }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set(c10::detail::getNonDeterministicRandom(), 0);
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);
    TORCH_CHECK(state.numel() == 16, "RNG state is wrong size");
    uint64_t words[2];
    std::memcpy(words, state.data(), 16);
    set(words[0], words[1]);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::empty({16}, at::TensorOptions(at::kCPU).dtype(at::kByte));
    const uint64_t words[2] = {seed_, offset_};
    std::memcpy(state.data_ptr(), words, 16);
    return state.getIntrusivePtr();
  }
  // The CPU generator of one kernel launch.
  at::Generator draw() {
    if (!std::getenv("SIMULATED_GPU_RANDOM")) {  // looked up each time: tests switch it
      offset_ += 4;
      return at::detail::createCPUGenerator((seed_ * 0x9E3779B97F4A7C15ull) ^ offset_);
    }
    if (!stream_.defined()) stream_ = at::detail::createCPUGenerator(seed_);
    return stream_;
  }
  static c10::DeviceType device_type() { return CUDA; }

 private:
  Generator* clone_impl() const override {
    auto* other = new Generator(device_.index());
    other->set(seed_, offset_);
    return other;
  }
  void set(uint64_t seed, uint64_t offset) {
    seed_ = seed;
    offset_ = offset;
    stream_ = at::Generator();
  }
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
  at::Generator stream_;
};

const at::Generator& default_generator(DeviceIndex index) {
  static const auto all = [] {
    std::vector<at::Generator> made;
    for (DeviceIndex i = 0; i < num_devices(); i++) made.push_back(at::make_generator<Generator>(i));
    return made;
  }();
  return all.at(index < 0 ? current : index);
}
// While set, `torch.Generator("cuda:i")` returns the default generator itself.
bool hand_out_defaults = false;

// Devices and streams; work is done when a call returns, so that no stream has anything to wait for

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = CUDA;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return CUDA; }
  Device exchangeDevice(Device d) const override {
    Device before(CUDA, current);
    setDevice(d);
    return before;
  }
  Device getDevice() const override { return Device(CUDA, current); }
  void setDevice(Device d) const override {
    TORCH_CHECK(d.index() < num_devices(), "CUDA error: invalid device ordinal");
    uncheckedSetDevice(d);
  }
  void uncheckedSetDevice(Device d) const noexcept override {
    if (d.index() >= 0) current = d.index();
  }
  c10::Stream getStream(Device d) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, Device(CUDA, d.index() < 0 ? current : d.index()));
  }
  c10::Stream getDefaultStream(Device d) const override { return getStream(d); }
  c10::Stream getStreamFromGlobalPool(Device d, bool) const override { return getStream(d); }
  c10::Stream getNewStream(Device d, int) const override { return getStream(d); }
  c10::Stream exchangeStream(c10::Stream s) const noexcept override { return getStream(s.device()); }
  DeviceIndex deviceCount() const noexcept override { return num_devices(); }
  void record(void** event, const c10::Stream&, const DeviceIndex, const c10::EventFlag) const override {
    *event = const_cast<Guard*>(this);
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { tell("sync", "synchronizeStream"); }
  void synchronizeEvent(void*) const override { tell("sync", "synchronizeEvent"); }
  void synchronizeDevice(const DeviceIndex) const override { tell("sync", "synchronizeDevice"); }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace simulated

namespace at {
// The registry's macro wants this namespace.
struct SimulatedCUDAHooks final : CUDAHooksInterface {
  explicit SimulatedCUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasCUDA() const override { return deviceCount() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return simulated::num_devices(); }
  int getNumGPUs() const override { return deviceCount(); }
  void setCurrentDevice(DeviceIndex i) const override { exchangeDevice(i); }
  DeviceIndex getCurrentDevice() const override { return simulated::current; }
  DeviceIndex current_device() const override { return simulated::current; }
  DeviceIndex exchangeDevice(DeviceIndex i) const override {
    return simulated::Guard().exchangeDevice({DeviceType::CUDA, i}).index();
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex i) const override { return exchangeDevice(i); }
  const Generator& getDefaultGenerator(DeviceIndex i) const override { return simulated::default_generator(i); }
  Generator getNewGenerator(DeviceIndex i) const override {
    if (simulated::hand_out_defaults) return simulated::default_generator(i);
    return make_generator<simulated::Generator>(i < 0 ? simulated::current : i);
  }
  Device getDeviceFromPtr(void*) const override { return {DeviceType::CUDA, simulated::current}; }
  bool isPinnedPtr(const void* data) const override { return simulated::is_pinned(data); }
  Allocator* getPinnedMemoryAllocator() const override { return &simulated::pinned_allocator; }
  Allocator* getCUDADeviceAllocator() const override { return &simulated::device_allocator; }
  void deviceSynchronize(DeviceIndex) const override { simulated::tell("sync", "deviceSynchronize"); }
};
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", SimulatedCUDAHooks)
}  // namespace at

namespace simulated {

// The same memory, seen from the other device. Each alias keeps the storage that it looks at alive.

c10::Storage alias_storage(const c10::Storage& storage, Device device, c10::Allocator* owner) {
  struct Kept { c10::Storage storage; int64_t counted; };
  auto* kept = new Kept{storage, device.is_cuda() ? static_cast<int64_t>(storage.nbytes()) : 0};
  count_memory(kept->counted);
  c10::DataPtr data(storage.mutable_data(), kept, [](void* context) {
    auto* kept = static_cast<Kept*>(context);
    count_memory(-kept->counted);
    delete kept;
  }, device);
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(data), owner, true));
}

Tensor alias(const Tensor& t, Device device) {
  auto* owner = device.is_cuda() ? &device_allocator : c10::GetAllocator(CPU);
  auto key = device.is_cuda() ? cuda_key : DispatchKeySet(c10::DispatchKey::CPU);
  auto out = at::detail::make_tensor<c10::TensorImpl>(alias_storage(t.storage(), device, owner), key, t.dtype());
  auto* impl = out.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  if (t.is_conj()) out._set_conj(true);
  if (t.is_neg()) out._set_neg(true);
  return out;
}

// The kernel of all operators

const std::set<std::string> indexing = {
    "aten::index.Tensor", "aten::index.Tensor_out", "aten::_unsafe_index.Tensor",
    "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"};
const std::set<std::string> syncing = {
    "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal", "aten::nonzero", "aten::nonzero.out",
    "aten::masked_select", "aten::masked_select.out", "aten::bincount", "aten::_unique2",
    "aten::unique_dim", "aten::unique_consecutive", "aten::repeat_interleave.Tensor"};

std::string full_name(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

template <class F>
void for_each_tensor(const IValue& value, F&& f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isList()) {
    for (const IValue& item : value.toListRef()) for_each_tensor(item, f);
  }
}

// Returns the one device of all CUDA arguments; refuses what a CUDA kernel would refuse.
std::optional<Device> check_devices(const c10::FunctionSchema& schema, at::ArrayRef<IValue> arguments,
                                    const std::string& name) {
  constexpr auto two = "Expected all tensors to be on the same device, but found at least two devices, ";
  std::optional<Device> device;
  for (const auto& value : arguments)
    for_each_tensor(value, [&](const Tensor& t) {
      if (!t.is_cuda()) return;
      TORCH_CHECK(!device || t.device() == *device, two, *device, " and ", t.device(), "! (in ", name, ")");
      device = t.device();
    });
  if (!device) return device;
  for (size_t i = 0; i < arguments.size(); i++) {
    const auto& argument = schema.arguments()[i].name();
    bool index = argument == "indices" && indexing.count(name);
    for_each_tensor(arguments[i], [&](const Tensor& t) {
      if (index && (t.scalar_type() == at::kBool || t.scalar_type() == at::kByte))
        tell("sync", name + " with a mask");
      if (t.is_cuda() || t.dim() == 0) return;  // CUDA kernels take CPU scalars
      TORCH_CHECK(index && arguments[0].toTensor().is_cuda(), two, *device, " and ", t.device(),
                  "! (when checking argument for argument ", argument, " in method wrapper_CUDA_", name, ")");
      tell("upload", name + " with CPU indices", t.nbytes());
    });
  }
  return device;
}

// Fused optimisers on CUDA refuse what the CPU's take.
void check_fused_adam(at::ArrayRef<IValue> arguments, const std::string& name) {
  if (name != "aten::_fused_adam_" && name != "aten::_fused_adamw_") return;
  auto parameters = arguments[0].toTensorVector();
  for (size_t list = 1; list < 4; list++) {
    auto others = arguments[list].toTensorVector();
    for (size_t i = 0; i < parameters.size(); i++) {
      const auto &a = parameters[i], &b = others[i];
      bool same = a.sizes() == b.sizes() && a.dtype() == b.dtype() && a.device() == b.device();
      for (int64_t d = 0; same && d < a.dim(); d++) same = a.size(d) == 1 || a.stride(d) == b.stride(d);
      TORCH_CHECK(same, "params, grads, exp_avgs, and exp_avg_sqs must have same dtype, device, and layout");
    }
  }
  for (const auto& step : arguments[5].toTensorVector())
    TORCH_CHECK(step.is_cuda(), "fused Adam: state_steps must be on the device of the parameters");
}

void kernel(const c10::OperatorHandle& op, DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto name = full_name(op);
  const size_t n = schema.arguments().size(), begin = stack->size() - n;
  const std::vector<IValue> arguments(stack->begin() + begin, stack->end());
  const auto found = check_devices(schema, arguments, name);
  const auto device = found.value_or(Device(CUDA, current));
  check_fused_adam(arguments, name);

  // Down: CUDA tensors become aliases on the CPU, generators draw for one launch.
  std::unordered_map<c10::TensorImpl*, Tensor> aliases, originals;
  std::unordered_set<c10::StorageImpl*> storages;
  auto down = [&](const Tensor& t) -> Tensor {
    if (!t.defined() || !t.is_cuda()) return t;
    auto& a = aliases[t.unsafeGetTensorImpl()];
    if (!a.defined()) {
      a = alias(t, Device(CPU));
      originals[a.unsafeGetTensorImpl()] = t;
      storages.insert(a.storage().unsafeGetStorageImpl());
    }
    return a;
  };
  auto draw = [&](const at::Generator& g) {
    TORCH_CHECK(found && g.device() == device, "Expected a '", found ? device : Device(CPU),
                "' device type for generator but found '", g.device(), "'");
    return IValue(g.get<Generator>()->draw());
  };
  for (size_t i = 0; i < n; i++) {
    IValue& v = (*stack)[begin + i];
    const auto& argument = schema.arguments()[i];
    if (v.isTensor()) {
      v = down(v.toTensor());
    } else if (v.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& t : v.toTensorList()) list.push_back(down(t));
      v = list;
    } else if (v.isList() && argument.type()->str().find("Tensor?") != std::string::npos) {
      c10::List<std::optional<Tensor>> list;
      for (const IValue& item : v.toListRef())
        list.push_back(item.isTensor() ? std::optional<Tensor>(down(item.toTensor())) : std::nullopt);
      v = list;
    } else if (v.isDevice() && v.toDevice().is_cuda()) {
      v = Device(CPU);
    } else if (v.isGenerator()) {
      v = draw(v.toGenerator());
    } else if (v.isNone() && argument.name() == "generator" && found) {
      v = draw(default_generator(device.index()));
    }
  }
  tell(syncing.count(name) ? "sync" : "launch", name);
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    op.callBoxed(stack);
  }

  // Up: what the CPU kernel resized or made belongs to the device.
  for (auto& [a, t] : originals) {
    auto* original = t.unsafeGetTensorImpl();
    if (a->sizes() == t.sizes() && a->strides() == t.strides() && a->storage().nbytes() == t.storage().nbytes())
      continue;
    original->set_storage_keep_dtype(alias_storage(a->storage(), device, &device_allocator));
    original->set_sizes_and_strides(a->sizes(), a->strides(), a->storage_offset());
  }
  auto up = [&](const Tensor& t) -> Tensor {
    if (!t.defined() || t.is_cuda()) return t;
    auto original = originals.find(t.unsafeGetTensorImpl());
    if (original != originals.end()) return original->second;
    TORCH_CHECK(!storages.count(t.storage().unsafeGetStorageImpl()), "simulated GPU: ", name,
                " returned a view, so it needs a kernel of its own in simulated_gpu.cpp");
    return alias(t, device);
  };
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); i++) {
    IValue& v = (*stack)[i];
    if (v.isTensor()) {
      v = up(v.toTensor());
    } else if (v.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& t : v.toTensorList()) list.push_back(up(t));
      v = list;
    }
  }
}

// Operators that need more than the kernel of all: memory, copies, views

using MaybeType = std::optional<at::ScalarType>;
using MaybeLayout = std::optional<at::Layout>;
using MaybeDevice = std::optional<Device>;
using MaybeBool = std::optional<bool>;
using MaybeFormat = std::optional<at::MemoryFormat>;

template <class F>
Tensor allocate(MaybeType dtype, MaybeDevice device, MaybeBool pin, F&& make) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  auto before = Guard().exchangeDevice(device.value_or(Device(CUDA, current)));
  auto out = make(dtype.value_or(at::get_default_dtype_as_scalartype()));
  Guard().setDevice(before);
  return out;
}
Tensor empty(c10::IntArrayRef size, MaybeType dtype, MaybeLayout, MaybeDevice device, MaybeBool pin, MaybeFormat format) {
  return allocate(dtype, device, pin, [&](at::ScalarType type) -> Tensor {
    return at::detail::empty_generic(size, &device_allocator, cuda_key, type, format);
  });
}
Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, MaybeType dtype, MaybeLayout, MaybeDevice device, MaybeBool pin) {
  return allocate(dtype, device, pin, [&](at::ScalarType type) -> Tensor {
    return at::detail::empty_strided_generic(size, stride, &device_allocator, cuda_key, type);
  });
}

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  bool to = self.is_cuda(), from = source.is_cuda();
  if (to && from) {
    tell("launch", "aten::copy_");
  } else {
    // A copy from or to pageable memory waits, whatever was asked for.
    bool async = non_blocking && is_pinned((to ? source : self).const_data_ptr());
    tell(to ? (async ? "async upload" : "upload") : (async ? "async download" : "download"), "aten::copy_", source.nbytes());
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  (to ? alias(self, Device(CPU)) : self).copy_(from ? alias(source, Device(CPU)) : source);
  return self;
}

const Tensor& resize_(const Tensor& self, c10::IntArrayRef size, MaybeFormat format) {
  auto* impl = self.unsafeGetTensorImpl();
  size_t item = self.dtype().itemsize(), bytes = c10::multiply_integers(size) * item;
  if (self.storage().nbytes() < bytes + self.storage_offset() * item) {
    auto bigger = empty(size, self.scalar_type(), {}, self.device(), false, {});
    std::memcpy(bigger.mutable_data_ptr(), self.const_data_ptr(), std::min<size_t>(self.nbytes(), bytes));
    impl->set_storage_keep_dtype(bigger.storage());
    impl->set_storage_offset(0);
  }
  impl->set_sizes_contiguous(size);
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  return self;
}

Tensor& set_storage(Tensor& self, c10::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  TORCH_CHECK(source.device() == self.device(), "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(), "\"");
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(source);
  impl->set_storage_offset(offset);
  if (stride.data()) impl->set_sizes_and_strides(size, stride);
  else impl->set_sizes_contiguous(size);
  return self;
}
Tensor& set_whole_storage(Tensor& self, c10::Storage source) {
  int64_t n = source.nbytes() / self.dtype().itemsize();
  return set_storage(self, source, 0, {n}, {});
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("copy_", copy_);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  // Composite operators that pick a backend by the device.
  m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&kernel>());
  m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&kernel>());
  // Structured operators have CUDA kernels for all variants; the composite ones would allocate an
  // output and call the variant with out=, two events where CUDA has one. Operators on lists of
  // tensors start one kernel there, and one per tensor on a CPU.
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findOp(name);
    if (name.name.rfind("aten::", 0) != 0 || !op) continue;
    bool structured = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) &&
        op->hasKernelForDispatchKey(c10::DispatchKey::CPU);
    if (structured || name.name.rfind("aten::_foreach_", 0) == 0)
      m.impl(full_name(*op).substr(6).c_str(), torch::CppFunction::makeFromBoxedFunction<&kernel>());
  }
}

const bool registered = [] {
  c10::SetAllocator(CUDA, &device_allocator, 100);
  return true;
}();

}  // namespace simulated

extern "C" {
void simulated_gpu_set_listener(simulated::Listener f) { simulated::listener.store(f); }
void simulated_gpu_set_device(int i) { simulated::Guard().setDevice({simulated::CUDA, static_cast<c10::DeviceIndex>(i)}); }
int simulated_gpu_current_device() { return simulated::current; }
int simulated_gpu_device_count() { return simulated::num_devices(); }
int simulated_gpu_has_hooks() { return at::detail::getCUDAHooks().hasCUDA(); }
void simulated_gpu_hand_out_defaults(int on) { simulated::hand_out_defaults = on; }
int64_t simulated_gpu_peak_bytes() { return simulated::peak_bytes.load(); }
void simulated_gpu_reset_peak() { simulated::peak_bytes.store(simulated::live_bytes.load()); }
}
