# LibTorch for the CPU: the target LibTorch::LibTorch (libtorch_cpu, libc10 and Gloo's headers).
#
# Not find_package(Torch): that one of a CUDA wheel wants a CUDA toolkit, and links what a CPU rank does not need.
# Looks in TORCH_DIR (variable or environment), then .venv, then where the python3 on PATH finds torch.
file(GLOB _venv_torch ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
execute_process(
  COMMAND python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '', end='')"
  OUTPUT_VARIABLE _python_torch ERROR_QUIET)
foreach(_candidate "${TORCH_DIR}" "$ENV{TORCH_DIR}" ${_venv_torch} "${_python_torch}")
  if(NOT LibTorch_FOLDER AND EXISTS "${_candidate}/version.py")
    file(STRINGS "${_candidate}/version.py" _line REGEX "^__version__ = ")
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" LibTorch_VERSION "${_line}")
    if(LibTorch_VERSION MATCHES "^2\\.11\\.")
      set(LibTorch_FOLDER "${_candidate}")
    endif()
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_FOLDER VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or name a torch 2.11 folder in TORCH_DIR")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  file(GLOB _cuda_libraries ${LibTorch_FOLDER}/../nvidia/cu13/lib)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  # -idirafter: the wheel ships old protobuf headers that must not hide Debian's.
  target_compile_options(LibTorch::LibTorch INTERFACE
    "SHELL:-idirafter ${LibTorch_FOLDER}/include"
    "SHELL:-idirafter ${LibTorch_FOLDER}/include/torch/csrc/api/include"
    "SHELL:-idirafter ${LibTorch_FOLDER}/include/kineto")
  target_compile_definitions(LibTorch::LibTorch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
  target_link_directories(LibTorch::LibTorch INTERFACE ${LibTorch_FOLDER}/lib)
  target_link_libraries(LibTorch::LibTorch INTERFACE torch_cpu c10)
  target_link_options(LibTorch::LibTorch INTERFACE
    "LINKER:-rpath,${LibTorch_FOLDER}/lib:${_cuda_libraries}" "LINKER:-rpath-link,${_cuda_libraries}")
endif()
