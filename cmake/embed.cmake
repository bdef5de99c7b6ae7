# embed.cmake - writes two .c files from the files in MODELS. OUT has the texts of the files as
# osh_embedded_models[]. TYPES has their "model_types" as osh_embedded_types[].
# Usage: cmake -DOUT=... -DTYPES=... -DMODELS=... -P embed.cmake
function(c_string out hex)
  string(REGEX REPLACE "(..)" "\\\\x\\1" hex "${hex}")
  # Writes 8 bytes per line. A line must end after a whole hex escape, because escapes are greedy.
  string(REGEX REPLACE "((\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..))" "\\1\"\n    \"" hex "${hex}")
  set(${out} "${hex}" PARENT_SCOPE)
endfunction()

# add_types(PATH) - appends to `types` a row for each member of "model_types" in the file. If the
# member has no key "text" and the file has no "wraps", adds "text" with the first architecture of
# the file.
function(add_types path)
  file(READ ${path} text)
  string(JSON n_types ERROR_VARIABLE none LENGTH "${text}" model_types)
  if(none)
    return()
  endif()
  string(JSON kind ERROR_VARIABLE none TYPE "${text}" wraps)
  string(JSON first ERROR_VARIABLE none GET "${text}" architectures 0)
  math(EXPR last "${n_types} - 1")
  foreach(i RANGE ${last})
    string(JSON type MEMBER "${text}" model_types ${i})
    string(JSON record GET "${text}" model_types ${type})
    string(JSON served ERROR_VARIABLE lacks GET "${record}" text)
    if(lacks)
      set(served "")
    endif()
    if(kind STREQUAL OBJECT)
      set(served "")
    elseif(lacks AND first)
      set(served ${first})
      string(JSON record SET "${record}" text "\"${first}\"")
    endif()
    get_property(known GLOBAL PROPERTY type_${type})
    if(known)
      message(FATAL_ERROR "${path}: the model type ${type} is also in ${known}")
    endif()
    set_property(GLOBAL PROPERTY type_${type} ${path})
    string(LENGTH "${record}" length)
    string(HEX "${record}" hex)
    c_string(hex "${hex}")
    string(APPEND types "    {\"${type}\", \"${served}\",\n    \"${hex}\", ${length}},\n")
  endforeach()
  set(types "${types}" PARENT_SCOPE)
endfunction()

set(arrays "")
set(rows "")
set(types "")
set(n 0)
foreach(path IN LISTS MODELS)
  get_filename_component(name ${path} NAME_WE)
  file(READ ${path} hex HEX)
  string(LENGTH "${hex}" length)
  math(EXPR length "${length} / 2")
  c_string(hex "${hex}")
  string(APPEND arrays "static const char model_${n}[] =\n    \"${hex}\";\n")
  string(APPEND rows "    {\"${name}\", model_${n}, ${length}},\n")
  math(EXPR n "${n} + 1")
  add_types(${path})
endforeach()
file(WRITE ${OUT} "/* embedded_models.c - made by cmake/embed.cmake from models/; do not edit. */
#include \"graph/models.h\"

${arrays}
const osh_embedded_model osh_embedded_models[] = {
${rows}    {0},
};
const size_t osh_n_embedded_models = ${n};
")
file(WRITE ${TYPES} "/* embedded_types.c - made by cmake/embed.cmake from models/; do not edit. */
#include \"io/model_types.h\"

const osh_embedded_type osh_embedded_types[] = {
${types}    {0},
};
const size_t osh_n_embedded_types = sizeof osh_embedded_types / sizeof *osh_embedded_types - 1;
")
