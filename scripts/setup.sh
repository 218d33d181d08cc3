#!/usr/bin/env bash
# Installs what regatta needs to build, train on a CPU and prepare its material. Safe to run again.
#
#   scripts/setup.sh           Debian packages, then .venv with LibTorch and the preparation's packages
#   scripts/setup.sh --gpu     also the libraries of CUDA that torch's GPU half needs (2 GB); the driver and the CUDA 13
#                              toolkit, whose headers the build wants, are the machine's own
#   scripts/setup.sh --check   changes nothing: says what is missing, how many bytes, and which rights lack
#
# LibTorch: a torch 2.11 that TORCH_DIR names, or that the python3 on PATH has, is used as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly torch_version=2.11
readonly venv=.venv
readonly python=/usr/bin/python3   # Debian's own: its venv module comes from python3-venv

check_only=false
gpu=false
case "${1:-}" in
  "") ;;
  --check) check_only=true ;;
  --gpu) gpu=true ;;
  *) echo "setup.sh: unknown argument '$1'; --check and --gpu are known" >&2; exit 2 ;;
esac

packages=$(sed 's/#.*//' scripts/packages.txt)
missing=()
for package in $packages; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done

as_root=()
rights=ok
if [ "$(id -u)" != 0 ]; then
  if command -v sudo >/dev/null && { $check_only && sudo -n true 2>/dev/null || ! $check_only; }; then
    as_root=(sudo)
  else
    rights=missing
  fi
fi

# The folder of a usable torch, or nothing: TORCH_DIR, then our .venv, then the python3 on PATH.
find_torch() {
  local candidate version
  for candidate in "${TORCH_DIR:-}" $venv/lib/python3*/site-packages/torch \
      "$(python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")' 2>/dev/null || true)"; do
    [ -n "$candidate" ] && [ -f "$candidate/version.py" ] || continue
    version=$(sed -n "s/^__version__ = '\(.*\)'/\1/p" "$candidate/version.py")
    case "$version" in "$torch_version".*) echo "$candidate"; return ;; esac
  done
}

if $check_only; then
  if [ ${#missing[@]} -gt 0 ]; then
    bytes=$(apt-get --print-uris -qq -y --no-install-recommends install "${missing[@]}" 2>/dev/null \
      | awk '{sum += $3} END {print sum + 0}' || true)
    echo "debian packages missing: ${missing[*]} (${bytes:-unknown} bytes to fetch with what they need)"
    [ "$rights" = ok ] || echo "rights missing: installing packages needs root or sudo"
  else
    echo "debian packages: all installed"
  fi
  torch=$(find_torch)
  if [ -n "$torch" ]; then echo "LibTorch: $torch"; else
    echo "LibTorch: missing (about 545000000 bytes to fetch into $venv, 1500000000 on disk)"; fi
  if $venv/bin/python -c 'import gguf, huggingface_hub, numpy, pyarrow, safetensors, tokenizers' 2>/dev/null; then
    echo "preparation packages: installed in $venv"
  else
    echo "preparation packages: missing (about 75000000 bytes to fetch into $venv)"
  fi
  exit 0
fi

if [ ${#missing[@]} -gt 0 ]; then
  if [ "$rights" = missing ]; then
    echo "setup.sh: these packages are missing and installing them needs root: ${missing[*]}" >&2
    echo "          ask an administrator to run: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "installing ${#missing[@]} Debian packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ ! -x $venv/bin/pip ]; then
  echo "making $venv"
  $python -m venv --clear $venv
fi

# pip checks each archive's hash against its index; the stamp makes a second run free of network calls.
install_pinned() {  # requirements file, pip options...
  local file=$1 stamp
  stamp=$venv/.installed-$(basename "$file" .txt)
  shift
  if ! cmp -s "$file" "$stamp"; then
    echo "installing $(sed 's/#.*//; /^$/d' "$file" | tr '\n' ' ')"
    $venv/bin/pip install --quiet --disable-pip-version-check "$@" -r "$file"
    cp "$file" "$stamp"
  fi
}
install_pinned scripts/requirements/prepare.txt  # before LibTorch, whose unmet dependencies pip would list
torch=$(find_torch)
if [ -z "$torch" ]; then
  install_pinned scripts/requirements/libtorch.txt --no-deps
  torch=$(find_torch)
fi
if $gpu; then
  case "$torch" in
    $venv/*) install_pinned scripts/requirements/gpu.txt --no-deps ;;
    *) echo "the libraries of CUDA are those of $torch's own environment" ;;
  esac
fi
echo "ready: LibTorch in $torch"
