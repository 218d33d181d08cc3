#include "worker/grpc_store.h"

namespace regatta {
namespace {

using Bytes = std::vector<uint8_t>;

std::string ToText(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
Bytes ToBytes(const std::string& text) { return {text.begin(), text.end()}; }

// c10d's callers match on its own exception.
template <typename Call>
auto Translate(const Call& call) {
  try {
    return call();
  } catch (const CoordinatorError& e) {
    TORCH_CHECK_WITH(DistStoreError, false, e.what());
  }
}

// c10d's "no timeout" is 0; here it is the longest time that still counts down.
int64_t Milliseconds(std::chrono::milliseconds timeout) {
  constexpr int64_t kDayMs = 86400000;
  return timeout == c10d::Store::kNoTimeout ? kDayMs : timeout.count();
}

}  // namespace

GrpcStore::GrpcStore(std::shared_ptr<CoordinatorClient> client) : client_(std::move(client)) {}

c10::intrusive_ptr<c10d::Store> GrpcStore::clone() {
  auto copy = c10::make_intrusive<GrpcStore>(client_);
  copy->setTimeout(timeout_);
  return copy;
}

void GrpcStore::set(const std::string& key, const Bytes& value) {
  Translate([&] { client_->Set({key}, {ToText(value)}); });
}

Bytes GrpcStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  return Translate(
      [&] { return ToBytes(client_->CompareSet(key, ToText(expected), ToText(desired))); });
}

Bytes GrpcStore::get(const std::string& key) { return multiGet({key}).at(0); }

int64_t GrpcStore::add(const std::string& key, int64_t value) {
  return Translate([&] { return client_->Add(key, value); });
}

bool GrpcStore::deleteKey(const std::string& key) {
  return Translate([&] { return client_->Delete(key); });
}

bool GrpcStore::check(const std::vector<std::string>& keys) {
  return Translate([&] { return client_->Check(keys); });
}

int64_t GrpcStore::getNumKeys() { return static_cast<int64_t>(listKeys().size()); }

void GrpcStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void GrpcStore::wait(const std::vector<std::string>& keys,
                     const std::chrono::milliseconds& timeout) {
  Translate([&] { client_->Wait(keys, Milliseconds(timeout)); });
}

void GrpcStore::append(const std::string& key, const Bytes& value) {
  Translate([&] { client_->Append(key, ToText(value)); });
}

std::vector<Bytes> GrpcStore::multiGet(const std::vector<std::string>& keys) {
  std::vector<Bytes> values;
  for (const std::string& value :
       Translate([&] { return client_->Get(keys, Milliseconds(timeout_)); })) {
    values.push_back(ToBytes(value));
  }
  return values;
}

void GrpcStore::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  std::vector<std::string> texts;
  for (const Bytes& value : values) texts.push_back(ToText(value));
  Translate([&] { client_->Set(keys, texts); });
}

std::vector<std::string> GrpcStore::listKeys() {
  return Translate([&] { return client_->ListKeys(); });
}

}  // namespace regatta
