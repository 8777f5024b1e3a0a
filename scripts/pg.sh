#!/bin/sh
# make pg: finds the Postgres server binaries (version 15 or newer), or installs them. Root installs system-wide with the package
# manager, without a cluster and without a service. Anybody else gets the Debian packages unpacked into the user's cache folder,
# or is told what to do.
set -eu
cd "$(dirname "$0")/.."

pgrun() { ${GO:-go} run ./runtime/pgdev/pgtest/pgrun "$@"; }
where() { pgrun -where; }

if dir=$(where 2>/dev/null); then
  echo "Postgres: $dir"
  exit 0
fi
if [ -n "${NF_PG_BIN:-}" ]; then # the user named a folder: nothing else is right
  where
  exit 1
fi

# The newest server package of at least version 15 that apt knows.
apt_package() {
  # shellcheck disable=SC2086 # options
  apt-cache $1 search --names-only '^postgresql-[0-9]+$' | awk '{ sub("postgresql-", "", $1); if ($1 >= 15) print $1 }' | sort -n | tail -1
}

too_old() {
  echo "The package sources of this machine have no PostgreSQL 15 or newer. Add a source that has it, or set NF_PG_BIN." >&2
  exit 1
}

# What is installed: the server alone. Its package would make and start a cluster; a setting of postgresql-common says not to, for
# the time of the installation. A policy that forbids to start services stands beside it for the same time.
apt_root() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  version=$(apt_package "")
  [ -n "$version" ] || too_old
  conf=/etc/postgresql-common/createcluster.d/nf-no-cluster.conf
  policy=/usr/sbin/policy-rc.d
  trap 'rm -f "$conf"; [ -z "${made_policy:-}" ] || rm -f "$policy"' EXIT
  mkdir -p "$(dirname "$conf")"
  echo 'create_main_cluster = false' >"$conf"
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    made_policy=yes
  fi
  apt-get -qq install -y --no-install-recommends "postgresql-$version" >/dev/null
}

# The same packages, with what they need and this machine lacks, unpacked into a folder. apt keeps its lists there too.
apt_user() {
  cache=$(pgrun -cache)
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/work.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/lists/partial" "$work/archives/partial"
  options="-o Dir::State::lists=$work/lists -o Dir::Cache=$work -o Dir::Cache::archives=$work/archives -o Debug::NoLocking=1 -o APT::Sandbox::User="
  # shellcheck disable=SC2086 # options
  apt-get -qq $options update
  version=$(apt_package "$options")
  [ -n "$version" ] || too_old
  # shellcheck disable=SC2086 # options
  apt-get -qq $options -y --no-install-recommends --download-only install "postgresql-$version" >/dev/null
  for package in "$work"/archives/*.deb; do
    dpkg-deb -x "$package" "$work/root"
  done
  [ -x "$work/root/usr/lib/postgresql/$version/bin/postgres" ] || { # installed, but where nf does not look
    echo "The package postgresql-$version holds no server." >&2
    exit 1
  }
  rm -rf "$cache/root" "$cache/bin"
  mv "$work/root" "$cache/root"
  mkdir "$cache/bin"
  libraries=$(find "$cache/root" -name '*.so*' -exec dirname {} \; | sort -u | grep -v "/postgresql/$version/lib" | paste -s -d : -)
  for program in initdb postgres pgbench; do
    real=$cache/root/usr/lib/postgresql/$version/bin/$program
    [ -x "$real" ] || continue
    cat >"$cache/bin/$program" <<EOF
#!/bin/sh
LD_LIBRARY_PATH='$libraries'\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec '$real' "\$@"
EOF
    chmod 755 "$cache/bin/$program"
  done
}

echo "No Postgres server binaries of version 15 or newer; installing them." >&2
if [ "$(uname -s)" = Darwin ] && command -v brew >/dev/null 2>&1; then
  brew install postgresql@17
elif [ "$(id -u)" = 0 ]; then
  if command -v apt-get >/dev/null 2>&1; then
    apt_root
  elif command -v dnf >/dev/null 2>&1; then
    dnf install -y -q postgresql-server
  elif command -v zypper >/dev/null 2>&1; then
    zypper --non-interactive --quiet install postgresql-server
  elif command -v apk >/dev/null 2>&1; then
    apk add --quiet postgresql
  elif command -v pacman >/dev/null 2>&1; then
    pacman -S --noconfirm --quiet postgresql
  fi
elif command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1; then
  apt_user
fi
dir=$(where) || exit 1 # says what to do
echo "Postgres: $dir"
