# What the scripts that start ranks share. They find processes by /proc, since pgrep is in no package
# that a bare Debian has.
# shellcheck shell=sh

# Whether a kind of MPI is here: its shim in BUILD, and its mpirun. If not, $lacks names the packages.
mpi_is_here() { # BUILD, openmpi or mpich
    case $2 in
    openmpi) lacks="its mpi.h or its mpirun is not installed (Debian packages libopenmpi-dev and openmpi-bin)" ;;
    *) lacks="its mpi.h or its mpirun is not installed (Debian packages libmpich-dev and mpich)" ;;
    esac
    [ -e "$1/fp8c_mpi_$2.so" ] && command -v "mpirun.$2" >/dev/null
}

# The processes that process PID has started and that are still there.
children_of() { # PID
    grep -lsx "PPid:[[:space:]]*$1" /proc/[0-9]*/status | cut -d / -f 3
}

# The processes named fp8c that have WORDS in their command line.
fp8c_processes() { # WORDS
    for comm in $(grep -lsx fp8c /proc/[0-9]*/comm); do
        process=${comm%/comm}
        tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -qF -e "$1" && echo "${process#/proc/}"
    done || true
}
