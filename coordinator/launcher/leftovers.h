#pragma once

#include <string>

namespace regatta {

// Ends every process of this user whose environment carries `mark` ("REGATTA_TOKEN=..."), however
// far it has moved from its parents; looks again until none is left, some times at most. Returns
// how many it had to end. Only what was started with the mark has it.
int EndMarkedProcesses(const std::string& mark);

}  // namespace regatta
