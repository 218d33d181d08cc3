#include "worker/profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/kineto_shim.h>
#include <zlib.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

namespace regatta {
namespace {

namespace fs = std::filesystem;
namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

std::set<ActivityType> Activities(bool on_gpu) {
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (on_gpu) activities.insert(ActivityType::CUDA);
  return activities;
}

ProfilerConfig Config(const ProfileChoice& profile) {
  return ProfilerConfig(ProfilerState::KINETO, /*report_input_shapes=*/profile.shapes,
                        /*profile_memory=*/profile.memory);
}

// Compressed beside the original, which is removed; complete or not there at all.
int64_t Compress(const fs::path& from, const fs::path& to) {
  const fs::path part = to.string() + ".part";
  std::ifstream plain(from, std::ios::binary);
  gzFile packed = gzopen(part.c_str(), "wb6");
  TORCH_CHECK(plain && packed != nullptr, "trace ", part.string(),
              " cannot be written: ", std::strerror(errno));
  std::vector<char> chunk(1 << 20);
  bool written = true;
  while (written && plain) {
    plain.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    const auto got = static_cast<unsigned>(plain.gcount());
    written = got == 0 || gzwrite(packed, chunk.data(), got) == static_cast<int>(got);
  }
  written = gzclose(packed) == Z_OK && written;
  TORCH_CHECK(written, "trace ", part.string(), " cannot be written: is the disk full?");
  fs::rename(part, to);
  fs::remove(from);
  return static_cast<int64_t>(fs::file_size(to));
}

}  // namespace

StepProfiler::StepProfiler(ProfileChoice profile, int rank, int ranks, const std::string& backend,
                           bool on_gpu)
    : profile_(std::move(profile)),
      rank_(rank),
      // HTA finds the rank by "rank": and a blank.
      distributed_info_("{\"backend\": \"" + backend + "\", \"rank\": " + std::to_string(rank) +
                        ", \"world_size\": " + std::to_string(ranks) + "}"),
      on_gpu_(on_gpu) {}

StepProfiler::~StepProfiler() {
  around_step_.reset();
  if (recording_) kineto::disableProfiler();
}

void StepProfiler::Arm() {
  // Else a rank without a GPU complains once of none in its log. Kineto reads it when it begins.
  setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  kineto::prepareProfiler(Config(profile_), Activities(on_gpu_));
  // Kineto forgets what was added before.
  kineto::addMetadataJson("distributedInfo", distributed_info_);
  armed_ = true;
}

void StepProfiler::BeginStep(int64_t step) {
  step_ = step;
  if (profile_.active == 0) return;
  const int64_t cycle = profile_.wait + profile_.warmup + profile_.active;
  if (step >= cycle * profile_.repeat) return;
  const int64_t place = step % cycle;
  const int64_t first = profile_.wait + profile_.warmup;
  if (place >= profile_.wait && !armed_ && !recording_) Arm();
  if (place == first) {
    kineto::enableProfiler(Config(profile_), Activities(on_gpu_),
                           {at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE});
    armed_ = false;
    recording_ = true;
    first_recorded_ = step;
  }
  if (!recording_) return;
  around_step_ = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  around_step_->before("ProfilerStep#" + std::to_string(step));
}

std::optional<TraceFile> StepProfiler::EndStep() {
  around_step_.reset();
  const bool last = recording_ && step_ == first_recorded_ + profile_.active - 1;
  if (!last) return std::nullopt;
  return Write();
}

std::optional<TraceFile> StepProfiler::Close() {
  if (!recording_) return std::nullopt;
  return Write();
}

TraceFile StepProfiler::Write() {
  const std::unique_ptr<kineto::ProfilerResult> result = kineto::disableProfiler();
  recording_ = false;
  const fs::path folder = fs::path(profile_.folder) / ("rank_" + std::to_string(rank_));
  fs::create_directories(folder);
  const std::string name =
      "steps_" + std::to_string(first_recorded_) + "-" + std::to_string(step_) + ".pt.trace.json";
  const fs::path plain = folder / name;
  result->save(plain.string());
  TraceFile file{(folder / (name + ".gz")).string(), 0, first_recorded_,
                 step_ - first_recorded_ + 1};
  file.bytes = Compress(plain, file.path);
  return file;
}

}  // namespace regatta
