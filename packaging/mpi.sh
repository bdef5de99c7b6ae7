#!/usr/bin/env bash
# mpi.sh BUILD - makes oneshot-mpi_VERSION_amd64.deb in the working directory, from a finished build
# on Debian. The package has the modules for jobs of several ranks (docs/how-to/cluster.md). The
# modules work if Open MPI or MPICH is installed.
set -euo pipefail
build=$(realpath "${1:?want a build directory}")
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
for mpi in openmpi mpich; do
    [ -e "$build/liboneshot_mpi_$mpi.so" ] || { echo "$build has no module for $mpi: want mpicc.$mpi when it is built" >&2; exit 1; }
done
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
DESTDIR=$tree cmake --install "$build" --component mpi --prefix /usr >/dev/null
strip --strip-unneeded "$tree"/usr/lib/oneshot/*.so
mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<END
Package: oneshot-mpi
Version: $version
Architecture: amd64
Section: science
Maintainer: the authors of oneshot
Depends: oneshot (= $version) | oneshot-cuda (= $version), libopenmpi3 | libmpich12
Recommends: openmpi-bin | mpich
Description: several processes of oneshot do one job, on MPI
 Modules for Open MPI and MPICH, which oneshot opens when mpirun or srun has started it.
END
dpkg-deb --build --root-owner-group "$tree" "oneshot-mpi_${version}_amd64.deb" >/dev/null
