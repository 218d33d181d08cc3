#pragma once

#include <absl/status/status.h>
#include <grpcpp/grpcpp.h>

namespace regatta {

// Abseil's codes are gRPC's numbers.
[[nodiscard]] inline grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}
[[nodiscard]] inline absl::Status FromGrpc(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace regatta
