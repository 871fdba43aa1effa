# shardmark_build: warnings, sanitizers and language level, shared by every target of the project.
add_library(shardmark_build INTERFACE)
target_compile_features(shardmark_build INTERFACE cxx_std_20)
set(warnings -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<BOOL:${SHARDMARK_WERROR}>:-Werror>)
target_compile_options(shardmark_build INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")
if(SHARDMARK_SANITIZE)
  target_compile_options(shardmark_build INTERFACE
    -fsanitize=${SHARDMARK_SANITIZE} -fno-omit-frame-pointer -O1 -g1)
  target_link_options(shardmark_build INTERFACE -fsanitize=${SHARDMARK_SANITIZE})
endif()

# shardmark_add_library(NAME SOURCES ... DEPENDS ...): static library shardmark_NAME, alias
# shardmark::NAME, headers included from the source root ("core/rank.hpp").
function(shardmark_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
  add_library(shardmark_${name} STATIC ${arg_SOURCES})
  add_library(shardmark::${name} ALIAS shardmark_${name})
  set_target_properties(shardmark_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(shardmark_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/shardmark>)
  target_compile_features(shardmark_${name} PUBLIC cxx_std_20)
  target_link_libraries(shardmark_${name} PUBLIC ${arg_DEPENDS} PRIVATE
    $<BUILD_INTERFACE:shardmark_build>)
endfunction()
