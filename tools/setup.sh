#!/bin/bash
# Installs what one of the make targets needs and this machine lacks: Debian
# packages by apt-get, Python packages into build/venv, test suites by
# tools/suites.sh. Says nothing and fetches nothing when all is there.
#   tools/setup.sh build|test|test-rdma|lint|demo|bench|guest-qemu|guest-uml|guest-uml-build
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'p2pfs: %s\n' "$*" >&2; exit 1; }

need_root() {
	[ "$(id -u)" = 0 ] || die "this mounts file systems and must run as root (try: sudo make $1)"
}

need_fuse() {
	[ -c /dev/fuse ] || modprobe fuse 2>/dev/null || true
	[ -c /dev/fuse ] || die "/dev/fuse is not there: load the kernel's fuse module, or give the container --device /dev/fuse --cap-add SYS_ADMIN"
}

need_go() {
	command -v go >/dev/null || die "go is not on PATH: install Go $(awk '$1 == "go" { print $2 }' go.mod) or later"
}

# missing TEST PACKAGE: remembers the package when the test fails.
packages=()
missing() { eval "$1" >/dev/null 2>&1 || packages+=("$2"); }
command_of() { missing "command -v $1" "$2"; }

# Packages start the services they bring; ours are started by the tests
# themselves. A policy-rc.d of ours forbids it for as long as apt-get runs.
install_packages() {
	[ ${#packages[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || die "missing here, and no apt-get to install them: ${packages[*]}"
	[ "$(id -u)" = 0 ] || die "missing here, and only root can install them: ${packages[*]}"
	printf 'p2pfs: installing %s\n' "${packages[*]}"
	local policy=/usr/sbin/policy-rc.d mine="" log
	log=$(mktemp)
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod +x $policy
		mine=$policy
	fi
	local rc=0
	{
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -q && apt-get -o DPkg::Lock::Timeout=600 install -qy --no-install-recommends "${packages[@]}"
	} >"$log" 2>&1 </dev/null || rc=$?
	[ -z "$mine" ] || rm -f "$mine"
	[ $rc = 0 ] || { tail -n 20 "$log" >&2; die "apt-get could not install ${packages[*]} (all of its output: $log)"; }
	rm -f "$log"
}

python_packages() {
	local stamp=build/venv/requirements.txt
	cmp -s tools/requirements.txt $stamp && return 0
	printf 'p2pfs: installing %s into build/venv\n' "$(paste -sd ' ' tools/requirements.txt)"
	rm -rf build/venv
	mkdir -p build
	python3 -m venv build/venv
	build/venv/bin/python -m pip install -q --disable-pip-version-check -r tools/requirements.txt </dev/null
	cp tools/requirements.txt $stamp
}

python_venv() { # Debian keeps venv in a package of its own
	missing 'python3 -c "import sys; assert sys.version_info >= (3, 11)"' python3
	missing 'python3 -c "import venv, ensurepip"' python3-venv
}

race_detector() { # needs a C compiler and its headers
	command_of gcc gcc
	missing '[ -e /usr/include/stdlib.h ]' libc6-dev
}

guest() { # what runs in every guest of tools/guest, and what starts one
	command_of busybox busybox-static
	command_of ip iproute2
	command_of xz xz-utils
	missing 'ls /usr/lib/*/libibverbs/librxe-rdmav*.so' ibverbs-providers
	missing 'ls /usr/lib/*/librdmacm.so.1' librdmacm1
}

rdma_headers() {
	command_of gcc gcc
	missing '[ -e /usr/include/stdlib.h ]' libc6-dev
	missing '[ -e /usr/include/infiniband/verbs.h ]' libibverbs-dev
	missing '[ -e /usr/include/rdma/rdma_cma.h ]' librdmacm-dev
}

what=${1:-build}
case $what in
guest-*)
	guest
	case $what in
	guest-qemu)
		command_of qemu-system-x86_64 qemu-system-x86
		command_of zstd zstd
		;;
	guest-uml-build)
		for tool in gcc make flex bison bc; do command_of $tool $tool; done
		missing '[ -e /usr/include/stdlib.h ]' libc6-dev
		;;
	esac
	install_packages
	exit 0
	;;
esac
need_go
case $what in
build) exit 0 ;;
test-rdma)
	need_root "$what"
	rdma_headers
	command_of ibv_devinfo ibverbs-utils
	command_of ib_read_bw perftest
	command_of rdma iproute2
	command_of strace strace
	command_of fusermount3 fuse3
	command_of redis-server redis-server
	install_packages
	exit 0
	;;
lint)
	command_of shellcheck shellcheck
	install_packages
	exit 0
	;;
demo)
	need_root demo
	command_of fusermount3 fuse3
	;;
test)
	need_root "$what"
	race_detector
	command_of fusermount3 fuse3
	command_of etcd etcd-server
	command_of etcdctl etcd-client
	command_of redis-server redis-server
	command_of redis-sentinel redis-sentinel
	command_of ip iproute2
	command_of ps procps
	command_of setfattr attr
	for tool in git rsync sqlite3 stress-ng; do command_of $tool $tool; done
	# shellcheck disable=SC2207 # one package a word
	packages+=($(tools/suites.sh needs))
	;;
bench)
	need_root bench
	command_of fusermount3 fuse3
	command_of etcd etcd-server
	command_of ip iproute2
	command_of fio fio
	command_of vmtouch vmtouch
	;;
*) die "unknown set-up: $what" ;;
esac
need_fuse
python_venv
install_packages
python_packages
[ "$what" != test ] || tools/suites.sh
