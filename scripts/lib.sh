# shellcheck shell=bash
# Shared by the scripts here: saying, asking, acting as root. Sourced, not run.

say() { printf '== %s\n' "$*"; }

fail() { # fail SENTENCE: what a person has to do; usage errors exit 2 everywhere in this project
    printf '%s\n' "$*" >&2
    exit 2
}

on_apt() { # a Debian or Ubuntu, where packages can be installed
    [ -r /etc/os-release ] && command -v apt-get >/dev/null &&
        grep -qE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release
}

release() { # release KEY: from os-release, empty where it has none
    (. /etc/os-release && eval "printf %s \"\${$1:-}\"")
}

can_root() { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -E "$@"; fi
}

agreed() { # agreed QUESTION: yes without asking under ASSUME_YES=1 or where nobody could answer
    if [ "${ASSUME_YES:-}" = 1 ] || [ ! -t 0 ]; then return 0; fi
    local answer
    read -r -p "$1 [Y/n] " answer
    case "$answer" in [nN]*) return 1 ;; *) return 0 ;; esac
}

apt_install() { # apt_install PACKAGE ...; fails rather than remove what is there
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends --no-remove "$@"
}
