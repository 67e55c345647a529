#!/usr/bin/env bash
# All measurements on a machine with a GPU, in under eight minutes: see README.md beside this file.
#
#   validation/hardware/run_all.sh OUT [--seconds 460] [--backend cupy]... [--plan small]
#
# Run it again with the same OUT to go on where it stopped. PYTHON names the interpreter (python3), WHEELS the folder
# of wheels that missing packages are installed from (.whl in the checkout), WORK where they go (a temporary folder).
set -euo pipefail

[ $# -ge 1 ] && [ "${1#-}" = "$1" ] || { echo "usage: $0 OUT [--seconds S] [--backend NAME]... [--plan small]" >&2; exit 2; }
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"

seconds=460
given=()
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
        *) given+=("$1"); shift ;;
    esac
done
[[ $seconds =~ ^[0-9]+$ ]] || { echo "error: --seconds must be a whole number, not '$seconds'" >&2; exit 2; }

python=${PYTHON:-python3}
wheels=${WHEELS:-$root/.whl}
work=${WORK:-${TMPDIR:-/tmp}/simsched-hardware-$(id -u)}
mkdir -p "$work/site"
export PYTHONPATH=$root:$work/site${PYTHONPATH:+:$PYTHONPATH}
export SIMSCHED_CACHE_DIR=${SIMSCHED_CACHE_DIR:-$work/cache} CUPY_CACHE_DIR=${CUPY_CACHE_DIR:-$work/cupy}
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}

# What is missing of the packages that are needed, and "metadata" if this checkout was never installed.
missing() {
    "$python" - <<'PY'
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

if sys.version_info < (3, 11):
    sys.exit("error: Python 3.11 or newer is needed; PYTHON names the interpreter")
absent = [name for name in ("numpy", "llvmlite", "scipy", "networkx") if find_spec(name) is None]
try:
    version("simsched")
except PackageNotFoundError:
    absent.append("metadata")
print(*absent)
PY
}
absent=$(missing) || exit 2
for package in $absent; do
    for wheel in "$wheels/$package"-*.whl; do
        [ ! -e "$wheel" ] || "$python" -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$wheel"
    done
done
case " $absent " in *" metadata "*)
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
    mkdir -p "$work/site/simsched-$version.dist-info"
    printf 'Metadata-Version: 2.1\nName: simsched\nVersion: %s\n' "$version" >"$work/site/simsched-$version.dist-info/METADATA" ;;
esac
[ -z "$absent" ] || absent=$(missing)
for package in numpy llvmlite; do # scipy and networkx only some schedulers need
    case " $absent " in *" $package "*)
        echo "error: $package must be installed, or be a wheel in $wheels (README.md says which)" >&2
        exit 2 ;;
    esac
done

status=1
for _ in 1 2 3 4 5 6; do # a device that was lost, or an item that hung, ends the process; the next one goes on
    left=$((seconds - SECONDS))
    [ $left -ge 10 ] || break
    status=0
    "$python" -m validation.hardware.campaign "$out" --seconds "$left" ${given[@]+"${given[@]}"} || status=$?
    [ $status -ne 0 ] && [ $status -ne 2 ] || break
    echo "went on after status $status" >&2
done
exit $status
