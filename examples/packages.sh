# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by quickstart.sh and tests/run.sh: the Debian packages that zplan is built with, and what it takes to get them.
#
# install_packages installs those that are missing and says so; where nothing is missing it does nothing. It returns 1 with
# a message when it cannot.
# Trainers open OpenBLAS and oneDNN when they start. Of oneDNN only the library is needed, whose package has the version in its name.
packages='gcc g++ cmake ninja-build pkg-config flex bison libjansson-dev libpcre2-dev libexpat1-dev libunistring-dev llvm-19-dev libcriterion-dev libopenmpi-dev openmpi-bin
libopenblas0 libdnnl-dev liburing-dev python3 python3-numpy'

missing_packages() {
  for package in $packages; do
    dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' || printf '%s ' "$package"
  done
}

# Without dpkg we cannot know what is installed: look for the tools, and let cmake find the libraries or say which is missing.
check_tools() {
  absent=
  for tool in cc c++ cmake ninja flex bison mpicc mpirun python3; do
    command -v "$tool" >/dev/null 2>&1 || absent="$absent $tool"
  done
  [ -z "$absent" ] && return 0
  echo "not found:$absent" >&2
  echo "this is not a Debian or Ubuntu system; install what these packages hold, then run this again:" >&2
  echo "$packages" >&2
  return 1
}

install_packages() {
  if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    check_tools
    return
  fi
  missing=$(missing_packages)
  [ -z "$missing" ] && return 0
  as_root=
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
      echo "these packages are missing and only root can install them: apt-get install $missing" >&2
      return 1
    fi
    as_root=sudo
  fi
  echo "installing with apt-get${as_root:+ (sudo asks for your password)}: $missing"
  # shellcheck disable=SC2086 # one word a package
  $as_root apt-get update -q && $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing && return 0
  echo "apt-get could not install: $missing" >&2
  echo "llvm-19-dev is in Debian 12 and Ubuntu 24.04; older systems do not have it" >&2
  return 1
}
