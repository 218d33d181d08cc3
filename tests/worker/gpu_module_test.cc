#include "strategies/cuda/gpu_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "tests/testing/rendezvous_server.h"
#include "tests/testing/temporary_folder.h"
#include "worker/grpc_store.h"

namespace regatta {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class GpuModuleTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(REGATTA_GPU_OPENS).empty()) {
      GTEST_SKIP() << "libraries of CUDA are missing: scripts/setup.sh --gpu, then configure again";
    }
  }
};

TEST_F(GpuModuleTest, SaysWhetherAGpuCanBeUsed) {
  GpuModule& gpu = OpenGpuModule();
  const std::string wrong = gpu.WhyUnusable();
  if (wrong.empty()) {
    EXPECT_GT(gpu.Devices(), 0);
    EXPECT_NE(gpu.DeviceName(0), "");
  } else {
    EXPECT_THAT(wrong, AnyOf(HasSubstr("driver"), HasSubstr("GPU"), HasSubstr("NCCL")));
    EXPECT_EQ(gpu.Devices(), 0);
  }
}

TEST_F(GpuModuleTest, NcclAtOneRank) {
  GpuModule& gpu = OpenGpuModule();
  const std::string wrong = gpu.WhyUnusable();
  if (!wrong.empty()) GTEST_SKIP() << wrong;
  gpu.UseDevice(0);
  const auto backend =
      gpu.MakeNccl(c10::make_intrusive<c10d::HashStore>(), 0, 1, 0, std::chrono::seconds(60));
  (void)gpu.TakeMemory(0);
  std::vector<at::Tensor> tensors = {at::full({1 << 20}, 3.0, at::kCUDA)};
  backend->allreduce(tensors)->wait();
  EXPECT_EQ(tensors[0].sum().item<double>(), 3.0 * (1 << 20));
  const GpuMemory memory = gpu.TakeMemory(0);
  EXPECT_GE(memory.peak, int64_t{4} << 20);
  EXPECT_GE(memory.reserved, memory.allocated);
  backend->shutdown();
}

// A real one, as ProcessGroupNCCL hands it on: rank 0 makes it, all others read it.
TEST_F(GpuModuleTest, AnNcclIdReachesAllRanksThroughTheCoordinatorByteForByte) {
  constexpr int kRanks = 4;
  const std::string id = OpenGpuModule().MakeUniqueId();
  ASSERT_EQ(id.size(), 128u);
  EXPECT_NE(id, OpenGpuModule().MakeUniqueId());
  const TemporaryFolder folder;
  const std::string address = "unix:" + folder.Path() + "/socket";
  const RendezvousServer server(address, kRanks);
  std::vector<std::string> seen(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto store = c10::make_intrusive<c10d::PrefixStore>(
          "nccl/", c10::make_intrusive<GrpcStore>(std::make_shared<CoordinatorClient>(
                       RankIdentity{address, 1, 1, rank, "secret"})));
      if (rank == 0) store->set("0", std::vector<uint8_t>(id.begin(), id.end()));
      const std::vector<uint8_t> read = store->get("0");
      seen[static_cast<size_t>(rank)] = {read.begin(), read.end()};
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(seen, testing::Each(id));
}

}  // namespace
}  // namespace regatta
