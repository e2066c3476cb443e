#!/bin/sh
# What the tests need beside Python and Node: redis-server, Chromium, a font with Chinese letters,
# and two that check DICOM files: dciodvfy (dicom3tools) and dsrdump (dcmtk).
# Installs through the system's package manager where the user may; otherwise one clear line.
set -eu

chromium_there() {
    [ -n "${CHROME_PATH:-}" ] && [ -x "${CHROME_PATH}" ] && return
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
        command -v google-chrome >/dev/null ||
        [ -x "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" ] ||
        [ -x "/Applications/Chromium.app/Contents/MacOS/Chromium" ]
}

font_there() {
    [ "$(uname -s)" = Darwin ] && return
    command -v fc-list >/dev/null && [ -n "$(fc-list :lang=zh file)" ]
}

missing() {
    command -v redis-server >/dev/null || printf 'redis-server '
    chromium_there || printf 'chromium '
    font_there || printf 'fonts-noto-cjk '
    command -v dciodvfy >/dev/null || printf 'dicom3tools '
    command -v dsrdump >/dev/null || printf 'dcmtk '
}

wanted=$(missing)
[ -n "$wanted" ] || exit 0

if command -v apt-get >/dev/null; then
    if [ "$(id -u)" = 0 ]; then as_root=""; elif sudo -n true 2>/dev/null; then as_root="sudo -n"; else as_root=no; fi
    if [ "$as_root" != no ]; then
        echo "Installing for the tests: $wanted…"
        export DEBIAN_FRONTEND=noninteractive
        $as_root apt-get update -qq
        # fontconfig brings fc-list, by which the font is found.
        # shellcheck disable=SC2086
        $as_root apt-get install -y -qq --no-install-recommends $wanted fontconfig >/dev/null
        # Ubuntu's package starts a Redis of its own; the tests start theirs on a free port.
    fi
elif command -v brew >/dev/null; then
    case "$wanted" in *redis-server*) brew install --quiet redis ;; esac
    case "$wanted" in *dcmtk*) brew install --quiet dcmtk ;; esac
    case "$wanted" in *chromium*) brew install --quiet --cask google-chrome ;; esac
fi

wanted=$(missing)
if [ -n "$wanted" ]; then
    echo "The tests need: $wanted— install with your package manager (Debian, Ubuntu: sudo apt-get install ${wanted% } fontconfig)" >&2
    exit 1
fi
