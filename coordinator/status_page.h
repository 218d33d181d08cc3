#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

namespace regatta {

// The page that shows experiments, runs and one run with its ranks, metrics and log tail. Loopback
// only, GET only, reads the database; renews itself in the browser.
class StatusPage {
 public:
  // `port` 0 takes a free one.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<StatusPage>> Serve(
      const std::string& state_folder, int port);
  ~StatusPage();
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;

  [[nodiscard]] std::string Url() const;

 private:
  struct Body;
  explicit StatusPage(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

// The HTML of a path ("/", "/experiment/1", "/run/1"); NOT_FOUND for others. For tests and the
// server.
[[nodiscard]] absl::StatusOr<std::string> RenderPage(const std::string& state_folder,
                                                     const std::string& path);

}  // namespace regatta
