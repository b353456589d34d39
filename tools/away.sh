# The campaign on a rented GPU machine without network, in a checkout that was copied there with modules.tar.xz in it:
#
#     bash tools/away.sh begin COMMIT [ARGUMENTS OF campaign.py run]   sets up a copy and begins, in the background
#     bash tools/away.sh wait SECONDS FOLDER                           then how far it is, and parcels to take home
#
# A second `wait` goes on waiting. NVIDIA's MPS, where the machine has it, lets the kernels of several runs overlap.
set -eu
place=/tmp/omrl-away
if [ "$1" = begin ]; then
  commit=$2
  shift 2
  mkdir -p $place/modules
  cp -r . $place/checkout
  tar xJf modules.tar.xz -C $place/modules
  cat > $place/environment <<X
unset PYTHONDONTWRITEBYTECODE
export PYTHONPATH=$place/checkout/src:$place/modules OMRL_COMMIT=$commit PYTHONPYCACHEPREFIX=$place/cache PYTHONUNBUFFERED=1
cd $place/checkout
X
  . $place/environment
  if command -v nvidia-cuda-mps-control > /dev/null; then
    mkdir -p /var/log/nvidia-mps
    nvidia-cuda-mps-control -d
  fi
  setsid nohup python3 tools/campaign.py run tools/campaign.toml "$@" > $place/log 2>&1 &
else
  seconds=$2 out=$3
  . $place/environment
  until [ "$seconds" -le 0 ] || ! pgrep -f "campaign.py run" > /dev/null; do
    sleep 2
    seconds=$((seconds - 2))
  done
  cat $place/log
  python3 tools/campaign.py show
  # What is finished of a group that is not.
  for study in paper/*/; do
    python3 tools/publish.py paper "$study" > /dev/null 2>&1 || true
  done
  python3 tools/campaign.py pack $place/parcels
  cp $place/parcels/* "$out"/ || true
  tar cJf "$out/logs.tar.xz" campaign/full/logs paper/*/progress || true
fi
