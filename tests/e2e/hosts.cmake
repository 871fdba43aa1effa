# Several hosts as network namespaces. Each test is a function of hosts_test.sh.
find_program(SHARDMARK_BASH bash)
if(NOT SHARDMARK_BASH OR NOT SHARDMARK_HAVE_MPI)
  message(STATUS "no bash or no MPI: runs over several hosts are not tested")
  return()
endif()
function(shardmark_add_hosts_test name program)
  add_test(NAME hosts_${name}
    COMMAND ${SHARDMARK_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/hosts_test.sh ${name})
  set_tests_properties(hosts_${name} PROPERTIES LABELS "e2e;hosts" TIMEOUT 60 PROCESSORS 2
    SKIP_RETURN_CODE 77 ENVIRONMENT
    "HOSTS=${PROJECT_SOURCE_DIR}/scripts/hosts;PROGRAM=$<TARGET_FILE:${program}>;SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/hosts/${name}")
endfunction()

foreach(name IN ITEMS ranks_are_placed_host_by_host exit_code_is_the_programs nothing_is_left
    two_hosts_run_a_layer ranks_of_a_host_share_memory links_are_shaped
    hanging_rank_is_named_with_its_host)
  shardmark_add_hosts_test(${name} shardmark-tp)
endforeach()
if(TARGET shardmark-cp)
  shardmark_add_hosts_test(advice_and_rows_over_a_slow_link shardmark-cp)
endif()
if(TARGET shardmark-collectives)
  foreach(name IN ITEMS collectives_over_two_hosts hierarchical_crosses_the_link_once
      killed_rank_is_named_with_its_host programs_end_over_four_hosts
      many_ranks_of_a_host_end_well)
    shardmark_add_hosts_test(${name} shardmark-collectives)
  endforeach()
endif()
