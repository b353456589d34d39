#!/bin/sh
# The report's page is tested in Chromium. Install it where we may, say what is missing where we may not or it fails.
command -v chromium >/dev/null || command -v chromium-browser >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null && exit 0
fi
echo "The report's page is tested in a browser: apt-get install chromium (those tests are skipped without it)."
