# Dumps of shardmark-tp against scripts/compare_numpy.py, and plots of a small run.
find_program(SHARDMARK_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(SHARDMARK_PYTHON python3)
set(python_lacks "python3")
if(SHARDMARK_PYTHON)
  execute_process(COMMAND ${SHARDMARK_PYTHON} -c "import numpy, pandas, matplotlib"
    RESULT_VARIABLE python_lacks ERROR_QUIET OUTPUT_QUIET)
endif()
find_program(SHARDMARK_BASH bash)
if(SHARDMARK_PYTHON AND SHARDMARK_BASH)
  add_test(NAME plot_says_what_is_missing
    COMMAND ${SHARDMARK_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/plot_missing_test.sh
            ${PROJECT_SOURCE_DIR}/scripts ${SHARDMARK_PYTHON} ${CMAKE_CURRENT_BINARY_DIR}/plot_missing)
  set_tests_properties(plot_says_what_is_missing PROPERTIES LABELS e2e TIMEOUT 60)
endif()
if(python_lacks)
  message(STATUS "no Python with NumPy, pandas and Matplotlib: dumps and plots are not tested")
  return()
endif()

# shardmark_add_script_test(NAME SCRIPT LAUNCHER OUTPUT-OPTION ARGUMENTS...): runs script_program
# (shardmark-tp) with OUTPUT-OPTION FOLDER, then SCRIPT on that folder.
set(script_program shardmark-tp)
function(shardmark_add_script_test name script launcher option)
  list(JOIN ARGN " " arguments)
  separate_arguments(script)
  list(POP_FRONT script file)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND}
    -D "LAUNCHER=${launcher}" -D PROGRAM=$<TARGET_FILE:${script_program}> -D "ARGUMENTS=${arguments}"
    -D OPTION=${option} -D FOLDER=${CMAKE_CURRENT_BINARY_DIR}/${name}
    -D PYTHON=${SHARDMARK_PYTHON} -D SCRIPT=${PROJECT_SOURCE_DIR}/scripts/${file}
    -D "SCRIPT_ARGUMENTS=${script}"
    -P ${CMAKE_CURRENT_SOURCE_DIR}/script_test.cmake)
  set_tests_properties(${name} PROPERTIES LABELS e2e TIMEOUT 120)
endfunction()

set(small --hidden 96 --heads 8 --ffn 192 --seq 32 --batch 2)
set(llama --mlp swiglu --norm rms --positions rotary --biases off)
function(shardmark_add_numpy_test name ranks)
  shardmark_add_script_test(numpy_${name} "compare_numpy.py --self-test" "" --dump
    --transport threads --ranks ${ranks} --tp ${ranks} ${small} ${ARGN})
endfunction()

shardmark_add_numpy_test(linear_column 2 --block linear-column)
shardmark_add_numpy_test(linear_row_sp 2 --block linear-row --sequence-parallel on)
shardmark_add_numpy_test(mlp_swiglu 3 --block mlp --mlp swiglu)
shardmark_add_numpy_test(mlp_gelu_tanh 2 --block mlp --gelu tanh)
shardmark_add_numpy_test(attention_shared_kv 4
  --block attention --kv-heads 2 --positions rotary --sequence-parallel on)
shardmark_add_numpy_test(attention_full 2 --block attention --causal off)
foreach(dtype IN ITEMS f32 bf16)
  shardmark_add_numpy_test(block_${dtype} 2 --block block --dtype ${dtype})
  shardmark_add_numpy_test(block_sp_overlap_${dtype} 2
    --block block --sequence-parallel on --overlap on --dtype ${dtype})
  shardmark_add_numpy_test(block_llama_shared_kv_${dtype} 4
    --block block ${llama} --kv-heads 2 --dtype ${dtype})
endforeach()
shardmark_add_numpy_test(block_overlap 2 --block block --overlap on)
shardmark_add_numpy_test(block_keep_gathered 2
  --block block --sequence-parallel on --keep-gathered)
shardmark_add_numpy_test(model_gpt 2
  --block model --layers 2 --vocab 64 --gelu tanh --positions learned --sequence-parallel on)
shardmark_add_numpy_test(model_llama 2 --block model --layers 2 --vocab 64 ${llama} --kv-heads 4)
if(SHARDMARK_HAVE_MPI)
  shardmark_add_script_test(numpy_block_mpi "compare_numpy.py"
    "${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 2" --dump --tp 2 ${small} --block block)
endif()

shardmark_add_script_test(plot_small_run "plot.py" "" --out
  --transport threads --ranks 2 --tp 1,2 --hidden 64,128 --heads 2 --seq 32,64 --overlap off,on
  --min-samples 2 --max-time 0.05 --check off --peak-tflops 0.1)

if(TARGET shardmark-collectives)
  add_test(NAME plot_collectives COMMAND ${CMAKE_COMMAND}
    -D LAUNCHER= -D PROGRAM=$<TARGET_FILE:shardmark-collectives>
    -D "ARGUMENTS=all_reduce,all_gather --ranks 4 --groups tp=2,dp=2 -b 8 -e 64K -f 8 --algorithm native,ring --max-time 0.02 --min-samples 3"
    -D OPTION=--out -D FOLDER=${CMAKE_CURRENT_BINARY_DIR}/plot_collectives
    -D PYTHON=${SHARDMARK_PYTHON} -D SCRIPT=${PROJECT_SOURCE_DIR}/scripts/plot_collectives.py
    -D "SCRIPT_ARGUMENTS=--imported;${CMAKE_CURRENT_SOURCE_DIR}/imported.csv"
    -P ${CMAKE_CURRENT_SOURCE_DIR}/script_test.cmake)
  set_tests_properties(plot_collectives PROPERTIES LABELS e2e TIMEOUT 120
    PASS_REGULAR_EXPRESSION "imported_all_reduce_f32_out_of_place.png.*contention_all_reduce" FAIL_REGULAR_EXPRESSION "Traceback")
endif()
