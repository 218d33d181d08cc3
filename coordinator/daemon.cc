#include "coordinator/daemon.h"

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "coordinator/control_service.h"
#include "coordinator/coordinator.h"
#include "coordinator/core_pool.h"
#include "coordinator/gpu_check.h"
#include "coordinator/launcher/local.h"
#include "coordinator/rank_service.h"
#include "coordinator/state_folder.h"
#include "coordinator/status_page.h"
#include "coordinator/version.h"

namespace regatta {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
constexpr int kLeftoverSeconds = 20;

LaunchListener MakeListener(EventQueue& events) {
  return {.spawned =
              [&events](int64_t run, int attempt, int rank, int64_t pid) {
                events.Post(RankSpawned{{run, attempt}, rank, pid});
              },
          .exited =
              [&events](int64_t run, int attempt, RankExit exit) {
                events.Post(RankExited{{run, attempt}, std::move(exit)});
              },
          .stuck =
              [&events](int64_t run, int attempt, int rank, int64_t pid) {
                spdlog::error("event=rank_stuck run={} attempt={} rank={} pid={}", run, attempt,
                              rank, pid);
                events.Post(RankStuck{{run, attempt}, rank, pid});
              },
          .unstuck =
              [&events](int64_t run, int attempt, int rank) {
                events.Post(RankUnstuck{{run, attempt}, rank});
              },
          .gone =
              [&events](int64_t run, int attempt) {
                events.Post(GangGone{{run, attempt}, absl::OkStatus()});
              }};
}

// Gangs that a crashed daemon left behind have no one to report to.
absl::Status EndLeftovers(const StoredState& stored) {
  for (const StoredRun& run : stored.runs) {
    if (run.ended || run.folder.empty()) continue;  // ended, or never started
    spdlog::warn("event=leftover run={} attempt={} folder={}", run.id, run.attempt, run.folder);
    const absl::Status status = LocalLauncher::EndLeftover(run.folder, kLeftoverSeconds);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Only one daemon of a machine may pin ranks: two would choose the same cores. The claim ends with
// this process. Negative: another has it.
int ClaimPinning() {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  constexpr std::string_view kName("\0regatta-pinning", 16);  // abstract: no file
  kName.copy(name.sun_path, kName.size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + kName.size());
  if (fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// Blocks the signals that end the daemon in every thread started from now on; the thread below
// takes them.
sigset_t BlockEndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

}  // namespace

absl::Status RunDaemon(const DaemonOptions& options) {
  const sigset_t signals = BlockEndSignals();
  if (options.with_parent) {
    const pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
      return absl::AbortedError("the process that started this one has ended");
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("regattad"));
  absl::StatusOr<std::unique_ptr<StateFolder>> state = StateFolder::Claim(options.state_folder);
  if (!state.ok()) return state.status();
  const std::string& folder = (*state)->Path();
  absl::StatusOr<std::unique_ptr<Writer>> writer = Writer::Open(folder);
  if (!writer.ok()) return writer.status();
  absl::StatusOr<std::unique_ptr<Reader>> reader = Reader::Open(folder);
  if (!reader.ok()) return reader.status();
  const absl::StatusOr<StoredState> stored = ReadStoredState(**reader);
  if (!stored.ok()) return stored.status();
  reader->reset();
  if (absl::Status status = EndLeftovers(*stored); !status.ok()) return status;

  SystemClock clock([](double seconds) {
    spdlog::warn("event=clock_set_back seconds={:.0f}: stored times go on from before", seconds);
  });
  if (!stored->experiments.empty() &&
      stored->experiments.back().submitted_us > clock.UnixMicros()) {
    spdlog::warn("event=clock_set_back: the newest experiment was submitted later than now");
  }
  const std::vector<Core> cores = MachineCores();
  const int slots = options.slots > 0 ? options.slots : std::max(1, static_cast<int>(cores.size()));
  const int pin_claim = ClaimPinning();
  if (pin_claim < 0) {
    spdlog::info("event=not_pinning: another regattad of this machine pins its ranks to cores");
  }
  EventQueue events;
  Rendezvous rendezvous([&events](AttemptKey key) { events.Post(AllJoined{key}); });
  Coordinator coordinator({.state_folder = folder,
                           .slots = slots,
                           .cores = cores,
                           .may_pin = pin_claim >= 0,
                           .gpus = VisibleGpus()},
                          clock, events, **writer, rendezvous);
  if (absl::Status status = coordinator.Load(*stored); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<LocalLauncher>> launcher = LocalLauncher::Make(
      {.supervisor_program = std::filesystem::read_symlink("/proc/self/exe").string(),
       .worker_program = options.worker_program,
       .coordinator_address = (*state)->SocketAddress()},
      MakeListener(events));
  if (!launcher.ok()) return launcher.status();
  coordinator.SetLauncher(**launcher);
  ProcessPreparer preparer(folder, std::filesystem::absolute(options.material_folder).string(),
                           [&events](const std::string& word, const absl::Status& status) {
                             if (!status.ok()) {
                               spdlog::warn("event=preparation_failed word={} sentence=\"{}\"",
                                            word, std::string(status.message()));
                             }
                             events.Post(Prepared{word, status});
                           });
  coordinator.SetPreparer(preparer);
  (*writer)->Start([&events](int64_t batch, const absl::Status& status) {
    events.Post(Committed{batch, status});
  });

  LogRetention retention(folder, options.keep_logs, [&coordinator](AttemptKey key) {
    return coordinator.FindSpec(key) != nullptr;
  });
  std::unique_ptr<StatusPage> page;
  if (options.http_port >= 0) {
    absl::StatusOr<std::unique_ptr<StatusPage>> served =
        StatusPage::Serve(folder, options.http_port);
    if (!served.ok()) return served.status();
    page = *std::move(served);
  }
  const std::string page_url = page == nullptr ? "" : page->Url();
  ControlService control(
      {.state_folder = folder,
       .material_folder = std::filesystem::absolute(options.material_folder).string(),
       .status_page = page_url,
       .slots = slots,
       .cores = static_cast<int>(cores.size()),
       .check_gpus =
           [&](int gpus) {
             return CheckGpus(options.worker_program, folder + "/gpu_check.log", gpus);
           }},
      events);
  RankServer ranks(coordinator, rendezvous, events);
  grpc::ServerBuilder builder;
  builder.AddListeningPort((*state)->SocketAddress(), grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.RegisterService(&control);
  builder.RegisterService(&ranks);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on ", (*state)->SocketAddress()));
  }
  if (absl::Status status = (*state)->PublishAddress(); !status.ok()) return status;

  std::thread([signals, &events] {
    int signal = 0;
    while (sigwait(&signals, &signal) == 0) events.Post(ShutdownWanted{});
  }).detach();

  spdlog::info("event=ready version={} state={} slots={} page={}", kVersion, folder, slots,
               page_url);
  std::printf("ready %s %s\n", (*state)->SocketAddress().c_str(), page_url.c_str());
  std::fflush(stdout);
  const absl::Status status = coordinator.Run();
  if (status.ok()) {
    spdlog::info("event=stopped");
  } else {
    spdlog::error("event=stopped error=\"{}\"", std::string(status.message()));
  }
  // What is decided is on disk. Waiting calls of clients end with the process; unwinding gRPC would
  // wait for them.
  writer->reset();
  page.reset();
  state->reset();
  std::fflush(nullptr);
  _exit(status.ok() ? 0 : 1);
}

}  // namespace regatta
