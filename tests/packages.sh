#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The packages in fresh trees: install, plan a trillion parameters, train gpt_tiny on 2 ranks, remove, nothing left.
#
#   tests/packages.sh wheel                   the wheel in a new virtual environment of this machine
#   tests/packages.sh wheel SUITE [FOLDER]    the same in a tree of Debian (bookworm, trixie)
#   tests/packages.sh deb SUITE [FOLDER]      the .deb in such a tree
#   tests/packages.sh pandas                  the wheel with pandas of the Python package index
#
# FOLDER keeps the tree and is taken as it is when it is there; without it a temporary one is made. A tree takes root, debootstrap and a
# network. Needs build/release. A .deb is for the release that it was made on: where SUITE is another one than this machine's, it is built
# in a second tree, FOLDER.build, which has what a build takes. The wheel brings the libraries whose names change.
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
build=$root/build/release
good=0
bad=0

check() { # WHAT COMMAND...
  what=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    good=$((good + 1))
    echo "ok   $what"
  else
    bad=$((bad + 1))
    echo "FAIL $what"
    tail -n 8 "$work/log"
  fi
}

listing() { # FOLDER: its files, but for what package managers and the kernel keep
  (cd "$1" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run -o -path ./tmp -o -path ./var/cache -o -path ./var/log \
    -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./etc/ld.so.cache -o -path ./home \) -prune -o -print | sort)
}

# A program of the fresh tree: $inside is what comes before it.
use() { # FOLDER of the examples, as the tree sees it; then words before the command
  at=$1
  shift
  check "the version" "$@" zplan --version
  check "plan gpt1t" "$@" sh -c "cd $at && zplan plan gpt1t.dz -o gpt1t.json && zplan verify gpt1t.json"
  check "plans are those of the build" "$@" sh -c "cd $at && zplan plan gpt_tiny.dz --gpus 2 --json | cmp - want.json"
  check "train gpt_tiny on 2 ranks" "$@" sh -c "cd $at && zplan run gpt_tiny.dz --ranks 2 --steps 5 --no-checkpoint --calibration none -- --data text.txt --validate text.txt"
}

examples() { # FOLDER: what is planned and trained
  mkdir -p "$1" && cp "$root/examples/gpt1t.dz" "$root/examples/gpt_tiny.dz" "$root/examples/text.txt" "$1" &&
    (cd "$1" && "$build/zplan" plan gpt_tiny.dz --gpus 2 --json >want.json)
}

module="import zplan; p = zplan.plan('gpt_tiny.dz', gpus=2); assert p.text == open('want.json').read(); print(zplan.verify(p))"

# The wheel's description against what its programs and libraries ask of the loader.
glibc_is_named() { # FOLDER of the environment
  newest=$(find "$1" -path '*/zplan/_home/*' -type f \( -name 'zplan*' -o -name '*.so*' \) -exec readelf --version-info {} + 2>/dev/null |
    grep -o 'GLIBC_[0-9.]*' | sort --unique --version-sort | tail -n 1)
  echo "$newest" && [ -n "$newest" ] && grep -rq "with glibc ${newest#GLIBC_} or newer" "$1"/lib/python3*/site-packages/zplan-*.dist-info/METADATA
}

frame="import pandas, zplan; p = zplan.plan('gpt_tiny.dz', gpus='1..4'); f = p.to_pandas(); assert isinstance(f, pandas.DataFrame)
assert f.to_dict('records') == p.rows() and list(f.devices) == [1, 2, 3, 4]; print(pandas.__version__)"

try_pandas() {
  examples "$home"
  check "a virtual environment" python3 -m venv "$home/venv"
  check "pip install the wheel with pandas" "$home/venv/bin/pip" install -q --disable-pip-version-check "$(echo "$work"/wheel/*.whl)[pandas]"
  check "a table of sizes is a DataFrame" sh -c "cd $home && venv/bin/python -c \"$frame\""
}

try_wheel() { # the tree as this machine sees it, or empty; then words before commands
  tree=$1
  shift
  examples "$tree$home/wheel"
  check "the wheel is made" cp "$work"/wheel/*.whl "$tree$home/wheel"
  check "a virtual environment" "$@" python3 -m venv "$home/venv"
  [ "$bad" -eq 0 ] || return
  listing "$tree$home/venv" >"$work/before"
  check "pip install the wheel" "$@" sh -c "$home/venv/bin/pip install --no-index --disable-pip-version-check --no-compile $home/wheel/*.whl"
  check "the description names the C library" glibc_is_named "$tree$home/venv"
  use "$home/wheel" "$@" env "PATH=$home/venv/bin:/usr/bin:/bin"
  check "import zplan" "$@" env PYTHONDONTWRITEBYTECODE=1 sh -c "cd $home/wheel && $home/venv/bin/python -c \"$module\""
  check "pip uninstall" "$@" "$home/venv/bin/pip" uninstall --yes --disable-pip-version-check zplan
  listing "$tree$home/venv" >"$work/after"
  grep -v __pycache__ "$work/before" >"$work/before.kept"
  grep -v __pycache__ "$work/after" >"$work/after.kept" # pip's own
  check "nothing of the wheel is left" diff "$work/before.kept" "$work/after.kept"
}

try_deb() { # the tree; then words before commands
  tree=$1
  shift
  examples "$tree$home/deb"
  check "the package is made" cp "$work"/deb/*.deb "$tree$home/zplan.deb"
  [ "$bad" -eq 0 ] || return
  listing "$tree" >"$work/before"
  check "dpkg --install" chroot "$tree" dpkg --install "$home/zplan.deb"
  use "$home/deb" "$@"
  check "import zplan" "$@" sh -c "cd $home/deb && python3 -c \"$module\""
  check "compile against libzplan" "$@" sh -c "cd $home/deb && cp /usr/share/doc/zplan/examples/library.c . && cc library.c \$(pkg-config --cflags --libs zplan) -ljansson -o plan_it && ./plan_it gpt_tiny.dz --gpus 2"
  check "the manual page" test -s "$tree/usr/share/man/man1/zplan.1"
  chroot "$tree" python3 -c "import zplan" >"$work/log" 2>&1 # as root: Python keeps bytes of it
  check "dpkg --purge" chroot "$tree" dpkg --purge zplan
  listing "$tree" >"$work/after"
  check "nothing of the package is left" diff "$work/before" "$work/after"
}

# What zplan recommends, and a user; what a build takes.
for_use='gcc libc6-dev make libopenmpi-dev openmpi-bin libllvm19 libopenblas0-pthread python3 python3-venv pkg-config libjansson-dev libexpat1
libpcre2-8-0 ^libunistring[25]$'
for_build='gcc g++ cmake ninja-build pkg-config flex bison libjansson-dev libpcre2-dev libexpat1-dev libunistring-dev llvm-19-dev libopenmpi-dev
liburing-dev python3 dpkg-dev file'

prepare() { # SUITE TREE PACKAGES
  [ -x "$2/bin/sh" ] || debootstrap --variant=minbase "$1" "$2" >"$work/log" 2>&1 || return 1
  cp /etc/resolv.conf "$2/etc/resolv.conf"
  # shellcheck disable=SC2016 # its own
  chroot "$2" sh -c 'export DEBIAN_FRONTEND=noninteractive; apt-get update -q && apt-get install -q -y --no-install-recommends $0 && {
    id tester || useradd --create-home tester; }' "$3"
}

release_here() {
  # shellcheck source=/dev/null
  (. /etc/os-release && echo "$VERSION_CODENAME")
}

# As a distributor does it: the files of this tree, built by that release's compiler against its libraries. Unit tests are not built.
build_deb() { # SUITE TREE
  prepare "$1" "$2" "$for_build" || return 1
  chroot "$2" install -d -o tester /home/tester/zplan &&
    (cd "$root" && git ls-files -z --cached --others --exclude-standard | tar --null --files-from - --create --file -) |
    tar --extract --file - --directory "$2/home/tester/zplan" && chroot "$2" chown -R tester /home/tester/zplan || return 1
  inside "$2" sh -c 'cd /home/tester/zplan && cmake --preset release -DZPLAN_TESTS=OFF && cmake --build --preset release -j2 &&
    cd build/release && rm -rf deb.out && cpack -G DEB -B deb.out' && mkdir -p "$work/deb" && cp "$2"/home/tester/zplan/build/release/deb.out/*.deb "$work/deb"
}

# Inside of the tree, as its user, with the processes and devices of this machine.
inside() { # TREE COMMAND...
  tree=$1
  shift
  # shellcheck disable=SC2016
  unshare --mount sh -c 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" && exec chroot --userspec=tester:tester "$0" env -i \
    HOME=/home/tester PATH=/usr/bin:/bin "$@"' "$tree" "$@"
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
case $1:$# in
wheel:1 | pandas:1)
  home=$work/home
  python3 "$root/driver/python/build_wheel.py" "$build" "$work/wheel" || exit 1
  "try_$1" "" env
  ;;
wheel:[23] | deb:[23])
  home=/home/tester
  tree=${3:-$work/tree}
  if [ "$1" = wheel ]; then
    python3 "$root/driver/python/build_wheel.py" "$build" "$work/wheel" || exit 1
  elif [ "$2" = "$(release_here)" ]; then
    (cd "$build" && cpack -G DEB -B "$work/deb" >"$work/log" 2>&1) || { cat "$work/log" && exit 1; }
  else
    check "the package is built in a tree of $2" build_deb "$2" "$tree.build"
  fi
  check "a tree of $2" prepare "$2" "$tree" "$for_use"
  [ "$bad" -eq 0 ] || exit 1
  rm -rf "$tree$home/wheel" "$tree$home/deb" "$tree$home/venv"
  chroot "$tree" install -d -o tester "$home/wheel" "$home/deb"
  "try_$1" "$tree" inside "$tree"
  ;;
*)
  echo "usage: tests/packages.sh wheel [SUITE [FOLDER]] | deb SUITE [FOLDER] | pandas" >&2
  exit 2
  ;;
esac
echo "$good passed, $bad failed"
[ "$bad" -eq 0 ]
