#!/bin/sh
# Rendering without a display needs EGL. Install it where we may, say what is missing where we may not.
PACKAGES="libegl1 libopengl0 libgl1-mesa-dri"
python3 -c 'import ctypes.util, sys; sys.exit(ctypes.util.find_library("EGL") is None)' && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $PACKAGES >/dev/null
else
  echo "Rendering needs OpenGL libraries: apt-get install $PACKAGES (everything else works without them)."
fi
