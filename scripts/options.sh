# options.sh - parses the command lines of other scripts. A script sources this file, sets the
# defaults of its variables, and calls:
#
#   options "model out runs install_peer!" "$@"     --model X, --out X and --runs X set the
#                                                   variables of these names; --install-peer sets
#                                                   install_peer to 1; `flags` gets the arguments
#                                                   after --
#   needed model out                                fails if one of the variables is empty
#   quietly FILE command ...                        runs the command with its output in FILE; if
#                                                   the command fails, shows the end of FILE and
#                                                   exits with 1
#
# For any other argument, prints the comment at the top of the script and exits with 2.

flags=()
options() {
    local known=" $1 " name
    shift
    while [ $# -gt 0 ]; do
        [ "$1" = -- ] && shift && flags=("$@") && return
        name=${1#--} name=${name//-/_}
        if [ "$1" != "${1#--}" ] && [[ $known == *" $name! "* ]]; then
            printf -v "$name" 1
        elif [ "$1" != "${1#--}" ] && [[ $known == *" $name "* ]] && [ $# -gt 1 ]; then
            printf -v "$name" %s "$2" && shift
        else
            sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2
            exit 2
        fi
        shift
    done
}

needed() {
    local name
    for name in "$@"; do
        [ -n "${!name}" ] || { echo "$(basename "$0"): --${name//_/-} is not given" >&2; exit 2; }
    done
}

quietly() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 || { tail -20 "$log" >&2; exit 1; }
}
