# embed.cmake - writes OUT, a .c file with the text of every file in MODELS as
# osh_embedded_models[]. Usage: cmake -DOUT=... -DMODELS=... -P embed.cmake
set(arrays "")
set(rows "")
set(n 0)
foreach(path IN LISTS MODELS)
  get_filename_component(name ${path} NAME_WE)
  file(READ ${path} hex HEX)
  string(LENGTH "${hex}" length)
  math(EXPR length "${length} / 2")
  string(REGEX REPLACE "(..)" "\\\\x\\1" hex "${hex}")
  # 8 bytes per line: hex escapes are greedy, so a line must end after a whole one.
  string(REGEX REPLACE "((\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..))" "\\1\"\n    \"" hex "${hex}")
  string(APPEND arrays "static const char model_${n}[] =\n    \"${hex}\";\n")
  string(APPEND rows "    {\"${name}\", model_${n}, ${length}},\n")
  math(EXPR n "${n} + 1")
endforeach()
file(WRITE ${OUT} "/* embedded_models.c - made by cmake/embed.cmake from models/; do not edit. */
#include \"graph/models.h\"

${arrays}
const osh_embedded_model osh_embedded_models[] = {
${rows}    {0},
};
const size_t osh_n_embedded_models = ${n};
")
