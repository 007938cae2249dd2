# One function per kind of target. A directory is a library is a CMake target is an include prefix:
#   divisi_library(kv SOURCES block_pool.cc DEPS core catalog TESTS block_pool_test.cc)
# makes divisi::kv, one test program per TESTS entry, and with DIVISI_FUZZ one fuzzer per FUZZERS
# entry. LINK names third-party targets that only this library's own sources see.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# -g1 keeps symbolised traces and profiles at a third of the size of -g. Sanitizers slow the code more
# than -O2 quickens it, and compile at half the cost with -O1.
if(DIVISI_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -DNDEBUG")
else()
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
endif()

find_program(DIVISI_CCACHE ccache)
if(DIVISI_CCACHE)
  # Paths under the tree are hashed relative to it: clones in different folders share results.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=true
    CCACHE_SLOPPINESS=pch_defines,time_macros ${DIVISI_CCACHE})
endif()
find_program(DIVISI_MOLD mold)
if(DIVISI_MOLD AND NOT DIVISI_FUZZ)
  add_link_options(-fuse-ld=mold)
endif()

# Floating point: contraction is off because a fused and an unfused multiply-add round differently,
# and which one the compiler picks would depend on the target (docs/numerics.md).
add_compile_options(-Wall -Wextra -Werror -Wno-missing-field-initializers -ffp-contract=off
                    -fno-omit-frame-pointer)
if(DIVISI_SANITIZE)
  # Instrumented code makes GCC 12 see uninitialized members of moved variants where there are none.
  # The plain build keeps the warning, and the sanitizers look for the thing itself.
  add_compile_options(-fsanitize=${DIVISI_SANITIZE} -fno-sanitize-recover=all
                      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${DIVISI_SANITIZE})
endif()
if(DIVISI_SANITIZE STREQUAL "thread")
  # ThreadSanitizer does not see thread fences. Asio's guard handlers that nothing else orders; here
  # queues with locks do, so they go. Everywhere, since inline code of one library must be one code.
  add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()
if(DIVISI_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# `cmake --build ... --target fuzzers` builds them all, and nothing else.
add_custom_target(fuzzers)

find_package(Threads REQUIRED)
include_directories(${CMAKE_SOURCE_DIR})

function(divisi_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LINK;TESTS;FUZZERS" ${ARGN})
  add_library(divisi_${name} STATIC ${ARG_SOURCES})
  add_library(divisi::${name} ALIAS divisi_${name})
  list(TRANSFORM ARG_DEPS PREPEND divisi::)
  target_link_libraries(divisi_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_LINK})
  foreach(source ${ARG_TESTS})
    divisi_test(${source} LINK divisi::${name})
  endforeach()
  foreach(source ${ARG_FUZZERS})
    divisi_fuzzer(${source} LINK divisi::${name})
  endforeach()
endfunction()

# What every test includes, parsed once: a second of each test's compile time. Built from the same
# flags as they are.
if(DIVISI_TESTS)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cc CONTENT "int main() {}\n")
  add_executable(divisi_test_headers EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/test_headers.cc)
  target_compile_options(divisi_test_headers PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  target_precompile_headers(divisi_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
endif()

# Seconds until ctest ends a test, here: sanitized programs are given ten times as long.
function(divisi_timeout out seconds)
  if(DIVISI_SANITIZE)
    math(EXPR seconds "${seconds} * 10")
  endif()
  set(${out} ${seconds} PARENT_SCOPE)
endfunction()

# One GoogleTest program per file. LABELS default to unit.
function(divisi_test source)
  if(NOT DIVISI_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "LINK;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  divisi_timeout(ARG_TIMEOUT ${ARG_TIMEOUT})
  get_filename_component(test_name ${source} NAME_WE)
  add_executable(${test_name} ${source})
  # Tests spend their time in the libraries; their own code is compiled for the compiler's speed.
  target_compile_options(${test_name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  target_link_libraries(${test_name} PRIVATE ${ARG_LINK} gtest gmock gtest_main Threads::Threads)
  target_precompile_headers(${test_name} REUSE_FROM divisi_test_headers)
  # Where the tree lies, for the tests that read files of it, themselves or by a fixture: others
  # compile alike in every clone.
  file(STRINGS ${source} uses_tree REGEX "DIVISI_SOURCE_DIR|_fixture\\.h")
  if(uses_tree)
    target_compile_definitions(${test_name} PRIVATE DIVISI_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  endif()
  add_test(NAME ${test_name} COMMAND ${test_name})
  set_tests_properties(${test_name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  if(DIVISI_SANITIZE STREQUAL "thread")
    # UCX patches madvise and its kind when it is loaded, which takes a lock; an ending thread calls
    # it when ThreadSanitizer has already let go of that thread, and crashes. Nothing here needs it.
    set_tests_properties(${test_name} PROPERTIES ENVIRONMENT UCX_MEM_EVENTS=no)
  endif()
endfunction()

# One libFuzzer program per file; seeds lie in tests/corpus/<name without _fuzz>/. Without libFuzzer,
# one test that replays those seeds.
function(divisi_fuzzer source)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  get_filename_component(fuzz_name ${source} NAME_WE)
  if(DIVISI_FUZZ)
    add_executable(${fuzz_name} ${source})
    target_link_libraries(${fuzz_name} PRIVATE ${ARG_LINK})
    target_link_options(${fuzz_name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${fuzz_name})
  elseif(DIVISI_TESTS)
    string(REGEX REPLACE "_fuzz$" "" corpus ${fuzz_name})
    add_executable(${corpus}_replay ${source} ${CMAKE_SOURCE_DIR}/tests/corpus_replay.cc)
    target_link_libraries(${corpus}_replay PRIVATE ${ARG_LINK})
    add_test(NAME ${corpus}_replay
      COMMAND ${corpus}_replay ${CMAKE_SOURCE_DIR}/tests/corpus/${corpus})
    divisi_timeout(seconds 120)
    set_tests_properties(${corpus}_replay PROPERTIES LABELS unit TIMEOUT ${seconds})
  endif()
endfunction()
