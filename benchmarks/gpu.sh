#!/usr/bin/env bash
# Measures Podium on a machine with a GPU and without a network, in less than 9 minutes.
#
#     benchmarks/gpu.sh [OUT]
#
# Python needs the packages of requirements.txt, without those of the notebooks, linters and Kaggle. Those that the
# machine lacks may lie as wheels in the folder WHEELS (default: .whl). If torch, timm, pandas, scikit-learn, scipy,
# OpenCV, tqdm, pytest, pytest-timeout and hypothesis are installed, these packages are still needed (add
# --python-version if its Python is another than that of the machine that downloads):
#
#     pip download --no-deps -d .whl albumentations==2.0.8 albucore==0.0.24 simsimd stringzilla simplejpeg \
#       pydantic==2.14.3 pydantic-core==2.50.4 annotated-types typing-inspection
#
# Writes OUT/tests.txt, OUT/gpu.json and OUT/gpu.md, the table for docs/benchmarks.md. Fails if a test fails, but
# measures nevertheless. To try the script on a CPU: DEVICE=cpu benchmarks/gpu.sh
set -euo pipefail
cd "$(dirname "$0")/.."

OUT=${1:-${OUT:-gpu-results}} DEVICE=${DEVICE:-cuda} PYTHON=${PYTHON:-python3} WHEELS=${WHEELS:-.whl}
started=$SECONDS
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
if [ -d "$WHEELS" ]; then
  "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --target "$packages" "$WHEELS"/*.whl
fi
export PYTHONPATH="$PWD/src:$packages${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1
if [ "$DEVICE" = cuda ]; then
  "$PYTHON" -c 'import torch; torch.ones(1, device="cuda")' 2>/dev/null || {
    echo "$PYTHON has no torch that finds a GPU; to try the script: DEVICE=cpu PYTHON=.venv/bin/python $0" >&2
    exit 1
  }
  tests="gpu" small=
else
  tests="not gpu and not slow" small=--small
fi
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
status=0
timeout -k 10 150 "$PYTHON" -m pytest -p no:cacheprovider tests/gpu -m "$tests" -rs --timeout 100 2>&1 | tee "$OUT/tests.txt" || status=1
left=$((510 - SECONDS + started)) # a run of five folds that takes longer is cut off; what was measured before is kept
timeout -k 10 $((left + 20)) "$PYTHON" -m benchmarks.gpu "$OUT" --device "$DEVICE" --seconds "$left" $small || status=1
exit $status
