#!/bin/sh
# Rendering without a display needs EGL. Install it where we may, say what is missing where we may not or it fails.
PACKAGES="libegl1 libopengl0 libgl1-mesa-dri"
python3 -c 'import ctypes.util, sys; sys.exit(None in map(ctypes.util.find_library, ("EGL", "OpenGL")))' && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $PACKAGES >/dev/null && exit 0
fi
echo "Rendering needs OpenGL libraries: apt-get install $PACKAGES (everything else works without them)."
