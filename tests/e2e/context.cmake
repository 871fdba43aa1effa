# shardmark-cp as a user runs it: each test is a function of context_test.sh; its dumps against
# NumPy, and its plots.
find_program(SHARDMARK_BASH bash)
if(SHARDMARK_BASH)
  function(shardmark_add_context_test name)
    add_test(NAME cp_${name}
      COMMAND ${SHARDMARK_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/context_test.sh ${name})
    set_tests_properties(cp_${name} PROPERTIES LABELS e2e TIMEOUT 120 PROCESSORS 2
      SKIP_RETURN_CODE 77 ENVIRONMENT
      "PROGRAM=$<TARGET_FILE:shardmark-cp>;MPIEXEC=${MPIEXEC_EXECUTABLE};SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/context/${name}")
  endfunction()
  foreach(name IN ITEMS
      threads_run_writes_all_files three_ranks_of_every_kind masks_and_grouped_queries hybrid_and_tp
      a_block_with_sequence_parallelism both_dtypes_and_phases resume_skips_finished_rows
      bad_input_exits_with_2 what_cannot_run_is_skipped dry_run_of_a_million_tokens advice_needs_no_rows
      help_and_lists)
    shardmark_add_context_test(${name})
  endforeach()
  if(SHARDMARK_HAVE_MPI)
    foreach(name IN ITEMS mpi_run_writes_all_files mpi_bad_input_is_printed_once)
      shardmark_add_context_test(${name})
    endforeach()
  endif()
endif()

if(NOT python_lacks)
  set(script_program shardmark-cp)
  set(small --seq 48 --heads 8 --head-dim 8 --batch 2)
  function(shardmark_add_context_numpy_test name ranks)
    shardmark_add_script_test(numpy_cp_${name} "compare_numpy.py --self-test" "" --dump
      --transport threads --ranks ${ranks} ${ARGN})
  endfunction()
  foreach(kind IN ITEMS ring ulysses all-gather)
    shardmark_add_context_numpy_test(${kind} 4 --cp 4 --kind ${kind} ${small})
    shardmark_add_context_numpy_test(${kind}_3_ranks_grouped 3
      --cp 3 --kind ${kind} --seq 36 --heads 6 --kv-heads 3 --head-dim 8 --order striped)
    shardmark_add_context_numpy_test(${kind}_window 2
      --cp 2 --kind ${kind} ${small} --kv-heads 1 --window 7 --causal off --order contiguous)
    shardmark_add_context_numpy_test(${kind}_packed 4
      --cp 4 --kind ${kind} --heads 8 --head-dim 8 --seqlens 10,14,8,16 --overlap off)
    shardmark_add_context_numpy_test(${kind}_bf16 2 --cp 2 --kind ${kind} ${small} --dtype bf16)
  endforeach()
  shardmark_add_context_numpy_test(hybrid 4 --cp 4 --kind hybrid ${small} --kv-heads 2)
  shardmark_add_context_numpy_test(hybrid_outer 4
    --cp 4 --kind hybrid --ulysses-outer on ${small} --order contiguous)
  shardmark_add_context_numpy_test(tp 4 --cp 2 --tp 2 --kind ring ${small})
  shardmark_add_context_numpy_test(block 4 --scope block --cp 2 --tp 2 --sp on --kind ring ${small}
    --mlp swiglu --norm rms --positions rotary --biases off --kv-heads 4)
  shardmark_add_context_numpy_test(block_packed 3 --scope block --cp 3 --kind all-gather --heads 3
    --head-dim 8 --seqlens 11,25 --positions rotary)
  if(SHARDMARK_HAVE_MPI)
    shardmark_add_script_test(numpy_cp_mpi "compare_numpy.py"
      "${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 2" --dump --cp 2 --kind ring ${small})
  endif()

  shardmark_add_script_test(plot_cp_small_run "plot_cp.py" "" --out
    --transport threads --ranks 2 --cp 1,2 --seq 64,128 --heads 4 --kv-heads 4,1 --head-dim 16
    --order contiguous,zigzag --min-samples 2 --max-time 0.05 --check off --peak-tflops 0.1)
  set_tests_properties(plot_cp_small_run PROPERTIES
    PASS_REGULAR_EXPRESSION "crossover.*png" FAIL_REGULAR_EXPRESSION "Traceback")
  # One figure of each, though the rows take different numbers of ranks; and every rank has a dot.
  shardmark_add_script_test(plot_cp_predicted "plot_cp.py" "" --out
    --predict h100-sxm-8 --cp 1,2,3 --order contiguous,zigzag --seq 1536,3k --heads 6 --dtype bf16)
  set_tests_properties(plot_cp_predicted PROPERTIES
    PASS_REGULAR_EXPRESSION "time_split[.]png.*balance[.]png"
    FAIL_REGULAR_EXPRESSION "Traceback|finite values")
endif()
