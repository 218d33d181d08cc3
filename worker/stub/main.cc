#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>

#include "worker/chaos/fault.h"
#include "worker/client/coordinator_client.h"
#include "worker/exit_codes.h"

namespace {

// Joins, meets every other rank through the store, reports made-up steps and finishes.
void RunStub(regatta::CoordinatorClient& client) {
  constexpr int64_t kTimeoutMs = 60000;
  const regatta::RunSpec spec = client.Join({{"worker", "stub"}});
  const int rank = client.Identity().rank;
  std::printf("rank %d of %d joined\n", rank, spec.ranks);
  client.Set({"here/" + std::to_string(rank)}, {std::to_string(rank)});
  regatta::CoordinatorClient::Keys keys;
  for (int peer = 0; peer < spec.ranks; ++peer) keys.push_back("here/" + std::to_string(peer));
  const std::vector<std::string> peers = client.Get(keys, kTimeoutMs);
  for (int peer = 0; peer < spec.ranks; ++peer) {
    if (peers[static_cast<size_t>(peer)] != std::to_string(peer))
      throw std::runtime_error("met a foreign rank");
  }
  const regatta::Chaos chaos(spec.chaos, rank);
  const int64_t steps = spec.steps > 0 ? spec.steps : 1;
  for (int64_t step = 0; step < steps; ++step) {
    chaos.At(step);
    client.Report({{step, {{"loss_sum", 1.0 / static_cast<double>(step + 1)}, {"rows", 1}}}},
                  steps);
  }
  client.Finish({.ok = true,
                 .sentence = "",
                 .exit_code = regatta::kExitOk,
                 .values = {{"steps", static_cast<double>(steps)},
                            {"last_loss_sum", 1},
                            {"last_loss_rows", 1}},
                 .facts = {}});
  chaos.At(regatta::kAfterFinish);
}

}  // namespace

int main() {
  int code = regatta::kExitFailed;
  regatta::ActBeforeJoin();
  try {
    regatta::CoordinatorClient client(regatta::ReadRankIdentity());
    RunStub(client);
    code = regatta::kExitOk;
  } catch (const regatta::CoordinatorError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    if (e.GetKind() == regatta::CoordinatorError::Kind::kRefused) code = regatta::kExitRefused;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  std::fflush(nullptr);
  _exit(code);  // gRPC's own end takes longer than the whole stub
}
