# last.sh - defines last_wins; to be sourced. last_wins PROGRAM ARGUMENTS... runs the program. If a
# flag occurs twice, the function passes on only the last occurrence, because the program refuses a
# flag that occurs twice. The function is pure bash, so that a preloaded library (inject.so) counts
# only calls of the program.
last_wins() {
    local -a flags=() values=() args=()
    local -A at=()
    local program=$1 flag i n=0
    shift
    while [ $# -gt 0 ]; do
        flag=$1
        shift
        case $flag in
            # These flags may occur several times, so all their occurrences are passed on.
            --ignore | --only | --targets | --sequential-targets | --calib-passthrough | --checkpoint) ;;
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
