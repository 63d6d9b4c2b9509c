# The one library target, which the folders add their files to, and the link that makes <fusegrad/...> name the source
# tree as it names the installed headers.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)
file(CREATE_LINK ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/include/fusegrad SYMBOLIC)

add_library(fusegrad)
add_library(fusegrad::fusegrad ALIAS fusegrad)
target_include_directories(fusegrad PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:include>)
target_compile_features(fusegrad PUBLIC cxx_std_20)
target_compile_definitions(fusegrad PUBLIC FUSEGRAD_WITH_CUDA=${FUSEGRAD_WITH_CUDA}
                           PRIVATE FUSEGRAD_WITH_ONEDNN=${FUSEGRAD_WITH_ONEDNN})
target_link_libraries(fusegrad PRIVATE $<BUILD_INTERFACE:fusegrad_flags> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
                                       OpenMP::OpenMP_CXX Threads::Threads)
if(FUSEGRAD_WITH_ONEDNN)
  target_link_libraries(fusegrad PRIVATE DNNL::dnnl)
endif()
if(FUSEGRAD_WITH_CUDA)
  target_link_libraries(fusegrad PRIVATE CUDA::cudart_static CUDA::cublasLt)
endif()

# Adds a folder's files. After CUDA come those that only a CUDA build compiles.
function(fusegrad_sources)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "CUDA")
  target_sources(fusegrad PRIVATE ${arg_UNPARSED_ARGUMENTS})
  if(FUSEGRAD_WITH_CUDA AND arg_CUDA)
    target_sources(fusegrad PRIVATE ${arg_CUDA})
  endif()
endfunction()
