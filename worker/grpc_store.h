#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "worker/client/coordinator_client.h"

namespace regatta {

// The coordinator's rendezvous as a c10d store: through it travel Gloo's addresses. Keys need no
// prefix for run or attempt; the coordinator keeps one scope for each. Thread-safe; no lock is held
// across a call. A wait that passes its time throws c10::DistStoreError naming the key, the waiting
// rank and the ranks that have not joined.
class GrpcStore : public c10d::Store {
 public:
  using c10d::Store::compareSet;
  using c10d::Store::set;

  explicit GrpcStore(std::shared_ptr<CoordinatorClient> client);

  c10::intrusive_ptr<Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }
  std::vector<std::string> listKeys() override;

 private:
  const std::shared_ptr<CoordinatorClient> client_;
};

}  // namespace regatta
