# Finds oneDNN 2.x or 3.x as target OneDNN::dnnl. Looks for the library itself: Debian's own package
# configuration also demands OpenCL, which the CPU engine does not need.
find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(OneDNN_LIBRARY NAMES dnnl)
foreach(header IN ITEMS dnnl_version.h dnnl_version_hash.h)
  if(EXISTS ${OneDNN_INCLUDE_DIR}/oneapi/dnnl/${header} AND NOT OneDNN_VERSION)
    file(READ ${OneDNN_INCLUDE_DIR}/oneapi/dnnl/${header} text)
    if(text MATCHES "DNNL_VERSION_MAJOR +([0-9]+).*DNNL_VERSION_MINOR +([0-9]+).*DNNL_VERSION_PATCH +([0-9]+)")
      set(OneDNN_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3})
    endif()
  endif()
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR
                                  VERSION_VAR OneDNN_VERSION)
if(OneDNN_FOUND AND NOT TARGET OneDNN::dnnl)
  add_library(OneDNN::dnnl UNKNOWN IMPORTED)
  set_target_properties(OneDNN::dnnl PROPERTIES
    IMPORTED_LOCATION ${OneDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${OneDNN_INCLUDE_DIR})
endif()
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)
