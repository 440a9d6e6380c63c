#!/usr/bin/env bash
# The kernels on an emulated aarch64 processor, on an x86 Debian or Ubuntu. Everything it fetches stays in build/arm:
# an emulator and an arm64 Python from the system's packages, and aarch64 wheels. Nothing is installed.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$root/build/arm
python=${PYTHON:-python3}

for tool in apt-get dpkg unzip; do
  command -v "$tool" >/dev/null || { echo "test-arm needs $tool, which Debian and Ubuntu have" >&2; exit 2; }
done

if [ ! -e "$work/ready" ]; then
  mkdir -p "$work"/{debs,apt/state/lists/partial,apt/cache/archives/partial,root,wheels,site}
  (cd "$work/debs" && apt-get download -qq qemu-user-static)
  dpkg -x "$work"/debs/qemu-user-static*.deb "$work/qemu"
  touch "$work/apt/state/status"
  cat > "$work/apt/conf" <<EOF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State "$work/apt/state";
Dir::State::status "$work/apt/state/status";
Dir::Cache "$work/apt/cache";
EOF
  APT_CONFIG=$work/apt/conf apt-get update -qq
  APT_CONFIG=$work/apt/conf apt-get install -qq -y --download-only --no-install-recommends \
    python3 libstdc++6 libgomp1 >/dev/null
  for package in "$work"/apt/cache/archives/*.deb; do dpkg -x "$package" "$work/root"; done
  version=$(ls "$work/root/usr/bin" | sed -n 's/^python3\.\([0-9]*\)$/3\1/p' | head -1)
  grep -E '^(numpy|numba|ml_dtypes)==' "$root/requirements/test.txt" > "$work/requirements.txt"
  "$python" -m pip download --quiet --dest "$work/wheels" --only-binary=:all: --python-version "$version" \
    --platform manylinux2014_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 \
    -r "$work/requirements.txt"
  for wheel in "$work"/wheels/*.whl; do unzip -qo "$wheel" -d "$work/site"; done
  touch "$work/ready"
fi

interpreter=$(ls "$work"/root/usr/bin/python3.[0-9]* | grep -E 'python3\.[0-9]+$' | head -1)
exec "$work/qemu/usr/bin/qemu-aarch64-static" -L "$work/root" \
  -E PYTHONPATH="$root/src:$work/site" -E NUMBA_CACHE_DIR="$work/cache" \
  "$interpreter" "$root/tests/arm/smoke.py"
