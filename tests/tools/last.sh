# last.sh - sourced. last_wins PROGRAM ARGUMENTS...: runs it; of a flag that occurs twice only the last one is given to it,
# since the program refuses two. Bash alone: what is preloaded (inject.so) counts calls of the program only.
last_wins() {
    local -a flags=() values=() args=()
    local -A at=()
    local program=$1 flag i n=0
    shift
    while [ $# -gt 0 ]; do
        flag=$1
        shift
        case $flag in
            --ignore | --only | --targets | --sequential-targets | --calib-passthrough | --checkpoint) ;; # lists
            --*=* | --) ;;
            --*) [ -z "${at[$flag]+set}" ] || unset "flags[${at[$flag]}]" "values[${at[$flag]}]"
                 at[$flag]=$n ;;
        esac
        flags[n]=$flag
        case $flag in
            --*) if [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then values[n]=$1; shift; fi ;;
        esac
        n=$((n + 1))
    done
    for i in "${!flags[@]}"; do
        args+=("${flags[$i]}")
        [ -z "${values[$i]+set}" ] || args+=("${values[$i]}")
    done
    "$program" "${args[@]}"
}
