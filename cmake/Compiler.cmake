# Compiler cache, fast linker, warnings and sanitizers.
find_program(CCACHE ccache)
if(CCACHE)
  # Sloppiness: a precompiled header is no reason to miss.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

if(REGATTA_SANITIZE)
  add_compile_options(-fsanitize=${REGATTA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${REGATTA_SANITIZE})
endif()

# One target a folder: static library NAME of the given sources, includes rooted at the repository.
function(regatta_library name)
  add_library(${name} STATIC ${ARGN})
  regatta_warnings(${name})
endfunction()

function(regatta_program name)
  add_executable(${name} ${ARGN})
  regatta_warnings(${name})
endfunction()

function(regatta_warnings name)
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wshadow -Wconversion -Werror)
endfunction()

# A program or test that uses the precompiled LibTorch header, which is made with -fPIC.
function(regatta_use_libtorch_header name)
  target_precompile_headers(${name} REUSE_FROM strategies)
  target_compile_options(${name} PRIVATE -fPIC)
endfunction()
