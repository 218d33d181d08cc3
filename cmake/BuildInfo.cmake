cmake_minimum_required(VERSION 3.25)
# cmake -DSOURCE=... -DTO=... -P BuildInfo.cmake: writes TO, a C++ file with the sources' commit, where it has changed.
# With changes that are not committed: "COMMIT dirty HASH_OF_THE_CHANGES".
set(_commit "unknown")
execute_process(COMMAND git -C ${SOURCE} rev-parse HEAD OUTPUT_VARIABLE _head OUTPUT_STRIP_TRAILING_WHITESPACE
                RESULT_VARIABLE _failed ERROR_QUIET)
if(_failed EQUAL 0)
  set(_commit "${_head}")
  execute_process(COMMAND git -C ${SOURCE} diff HEAD OUTPUT_VARIABLE _changes ERROR_QUIET)
  if(NOT "${_changes}" STREQUAL "")
    string(SHA1 _hash "${_changes}")
    string(SUBSTRING "${_hash}" 0 12 _hash)
    set(_commit "${_head} dirty ${_hash}")
  endif()
endif()
file(CONFIGURE OUTPUT ${TO} CONTENT "namespace regatta {
extern const char* const kBuildCommit;
const char* const kBuildCommit = \"@_commit@\";
}  // namespace regatta
" @ONLY)
