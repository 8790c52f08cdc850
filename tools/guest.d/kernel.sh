# shellcheck shell=bash
# shellcheck disable=SC2154 # tools and store are tools/guest's
# What both sorts of guest need to get a kernel. Sourced by tools/guest.

# host_needs WHAT: lets setup.sh install Debian packages that are missing here.
host_needs() {
	"$tools/setup.sh" "guest-$1" >&2 || die "this machine lacks what a guest needs"
}

# alone COMMAND...: only one at a time fetches, unpacks and builds. Who waited
# for another finds that all is done, if the command looks first.
alone() {
	local lock
	mkdir -p "$store"
	exec {lock}>"$store/lock"
	flock "$lock"
	"$@"
	exec {lock}>&-
}

# download PACKAGE: prints the path of its .deb, which it fetches unless an
# earlier run has.
download() {
	local into=$store/deb found
	mkdir -p "$into"
	found=$(find "$into" -name "$1_*.deb" -print -quit)
	if [ -z "$found" ]; then
		say "downloading $1"
		mkdir -p "$into/part"
		(cd "$into/part" && { apt_get download "$1" 2>/dev/null || { apt_get update && apt_get download "$1"; }; }) >&2 ||
			die "apt-get could not download $1"
		mv "$into/part/$1"_*.deb "$into/"
		found=$(find "$into" -name "$1_*.deb" -print -quit)
	fi
	printf '%s\n' "$found"
}

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o APT::Sandbox::User=root "$@" </dev/null; }
