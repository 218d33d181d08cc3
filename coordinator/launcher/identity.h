#pragma once

#include <sys/types.h>

#include <string>

namespace regatta {

// Names a process beyond the reuse of its pid and a reboot: "PID START_TICKS BOOT_ID". Empty where
// it is gone.
[[nodiscard]] std::string ProcessIdentity(pid_t pid);

}  // namespace regatta
