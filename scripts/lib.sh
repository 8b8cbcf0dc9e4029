# What the scripts share: where things are kept, and how what is missing is fetched.
# Sourced, not run. shellcheck shell=bash
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${DUELINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/dueline}
KAFKA_VERSION=4.1.1

export DUELINE_CACHE=$CACHE
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$CACHE/target}
# Debian's PostgreSQL package would start a cluster of its own on port 5432: nobody here wants it.
export DEBIAN_FRONTEND=noninteractive
# What tests build: every place where they may kill a process is there. One set of features, one build.
# shellcheck disable=SC2034 # used by those that source this file
FAIL_POINTS=(--features dueline-campaign/fail-points)
mkdir -p "$CACHE"
cd "$ROOT"

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 69; }
have() { command -v "$1" >/dev/null 2>&1; }

# install_packages WHY PACKAGE…: by apt as root, otherwise says what to install.
install_packages() {
    local why=$1
    shift
    if [ "$(id -u)" != 0 ] || ! have apt-get; then
        die "$why. Install what Debian calls: $*"
    fi
    say "$why: installing $*"
    local log=$CACHE/apt.log
    apt-get install -y --no-install-recommends "$@" >"$log" 2>&1 && return
    # The lists may be missing or old: a second try after an update.
    if ! { apt-get update && apt-get install -y --no-install-recommends "$@"; } >>"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die "apt-get could not install $* (all of its output: $log)"
    fi
}

# The newest server under Debian's versioned folders, or what pg_config says.
postgres_bin() {
    local found
    found=$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)
    if [ -x "$found" ]; then
        dirname "$found"
    elif have pg_config && [ -x "$(pg_config --bindir)/initdb" ]; then
        pg_config --bindir
    else
        return 1
    fi
}

need_postgres() {
    if [ -z "${DUELINE_PG_BIN:-}" ]; then
        if ! postgres_bin >/dev/null; then
            # Keeps the package from creating a cluster that is never used.
            if [ "$(id -u)" = 0 ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
                mkdir -p /etc/postgresql-common
                echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
            fi
            install_packages "PostgreSQL's server is missing" postgresql postgresql-client
        fi
        DUELINE_PG_BIN=$(postgres_bin) || die "PostgreSQL was installed, but no initdb is found"
    fi
    export DUELINE_PG_BIN
}

# What rdkafka's C library is built with.
need_build_tools() {
    have cargo || die "cargo is missing: install Rust 1.94 or newer (rustup.rs)"
    local missing=()
    have cc || missing+=(gcc libc6-dev)
    have c++ || missing+=(g++)
    have make || missing+=(make)
    have pkg-config || missing+=(pkg-config)
    have setpriv || missing+=(util-linux)
    # Makes the certificates of tests.
    have openssl || missing+=(openssl)
    [ -e /usr/include/openssl/ssl.h ] || missing+=(libssl-dev)
    [ -e /usr/include/zlib.h ] || missing+=(zlib1g-dev)
    if [ ${#missing[@]} -gt 0 ]; then
        install_packages "tools for the build are missing" "${missing[@]}"
    fi
}

# Fills $CACHE/kafka-VERSION once. Returns 1, having said why, when it cannot be fetched.
fetch_kafka() {
    local libs=$CACHE/kafka-$KAFKA_VERSION
    if [ ! -d "$libs" ]; then
        have mvn || (install_packages "Maven, which fetches Kafka, is missing" maven) || return 1
        say "Fetching Apache Kafka $KAFKA_VERSION from Maven (54 MB, once)"
        local part
        part=$(mktemp -d "$CACHE/kafka.XXXXXX")
        if ! mvn -B -q -f "$ROOT/scripts/kafka/pom.xml" dependency:copy-dependencies \
            -DoutputDirectory="$part" >"$CACHE/maven.log" 2>&1; then
            rm -rf "$part"
            tail -n 5 "$CACHE/maven.log" >&2
            say "Kafka could not be fetched (all of Maven's output: $CACHE/maven.log)"
            return 1
        fi
        chmod 755 "$part"
        # Whole or not at all; if another script was quicker, its copy is as good.
        mv -T "$part" "$libs" 2>/dev/null || rm -rf "$part"
    fi
    export DUELINE_KAFKA_LIBS=$libs
}

# Java and the broker's libraries, in DUELINE_KAFKA_LIBS. Returns 1 when that is impossible.
try_kafka() {
    have java || (install_packages "Java, which runs Kafka, is missing" default-jre-headless) ||
        return 1
    [ -n "${DUELINE_KAFKA_LIBS:-}" ] || fetch_kafka
}

need_kafka() {
    try_kafka || die "the tests need a real Kafka: see above, or set DUELINE_KAFKA_LIBS to a \
folder with the jars of Apache Kafka $KAFKA_VERSION"
}

# A Python with what examples/python needs, in $PYTHON: one environment for each set of requirements.
need_python() {
    have python3 && python3 -c 'import venv, ensurepip' 2>/dev/null ||
        install_packages "Python, which the example team is written in, is missing" python3 python3-venv
    local wanted=$ROOT/examples/python/requirements-test.txt venv
    venv=$CACHE/python-$(python3 -V | tr -dc '0-9.')-$(cat "$ROOT"/examples/python/requirements*.txt | sha256sum | head -c 12)
    if [ ! -e "$venv/complete" ]; then
        say "Fetching what examples/python needs (30 MB, once)"
        rm -rf "$venv"
        python3 -m venv "$venv"
        if ! "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" >"$CACHE/pip.log" 2>&1; then
            tail -n 5 "$CACHE/pip.log" >&2
            die "what examples/python needs could not be fetched (all of pip's output: $CACHE/pip.log)"
        fi
        touch "$venv/complete"
    fi
    # shellcheck disable=SC2034 # used by those that source this file
    PYTHON=$venv/bin/python
}

# What the example team in Java is built with.
need_java_tools() {
    have javac || install_packages "the Java compiler, for the example team in Java, is missing" default-jdk-headless
    have mvn || install_packages "Maven, which builds the example team in Java, is missing" maven
    # shellcheck disable=SC2034 # used by those that source this file
    JAVA_TEAM=$CACHE/java-team
}

# libfaketime, which moves clocks. What cannot have it leaves that out, and says so.
want_faketime() {
    compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null ||
        (install_packages "libfaketime, which moves clocks, is missing" faketime) || true
}

# Fills the array `apart`: before a command, it gives that command mounts that nobody else sees and that go with
# it, for a small disk that can be full. Empty where that is not allowed.
want_own_mounts() {
    apart=()
    if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
        # shellcheck disable=SC2034 # used by those that source this file
        apart=(unshare --mount --)
    fi
}
