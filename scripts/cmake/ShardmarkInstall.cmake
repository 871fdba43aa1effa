# cmake --install: headers, static libraries and a package for find_package(shardmark). Programs
# are installed where they are built (bench/CMakeLists.txt).
include(CMakePackageConfigHelpers)
set(shardmark_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shardmark)

foreach(library IN ITEMS core collectives layers profiler sim)
  if(NOT TARGET shardmark_${library})
    continue()
  endif()
  install(TARGETS shardmark_${library} EXPORT shardmarkTargets)
  install(DIRECTORY ${library} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardmark
    FILES_MATCHING PATTERN "*.hpp" PATTERN "*_internal.hpp" EXCLUDE)
endforeach()
# Its headers are in layers/.
install(TARGETS shardmark_pipeline EXPORT shardmarkTargets)
install(EXPORT shardmarkTargets NAMESPACE shardmark:: DESTINATION ${shardmark_package_dir})

configure_package_config_file(${PROJECT_SOURCE_DIR}/scripts/cmake/shardmarkConfig.cmake.in
  ${PROJECT_BINARY_DIR}/shardmarkConfig.cmake INSTALL_DESTINATION ${shardmark_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shardmarkConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/shardmarkConfig.cmake
  ${PROJECT_BINARY_DIR}/shardmarkConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/scripts/cmake/FindOneDNN.cmake
  DESTINATION ${shardmark_package_dir})
