# shellcheck shell=bash
# shellcheck disable=SC2154 # store, run, ... are tools/guest's
# Debian's kernel in an emulated machine. Sourced by tools/guest.

virtiofsd=/usr/lib/qemu/virtiofsd # of qemu-system-common

# qemu_package: the newest kernel of Debian's plain flavour. The cloud flavour
# has no soft-RoCE; before 6.12 the drivers of the root file system are modules,
# which would need an initial file system to load them from.
qemu_package() {
	apt-cache depends linux-image-6.12-amd64 linux-image-amd64 2>/dev/null |
		sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | sort -V |
		awk -F'[-.]' '$3 > 6 || ($3 == 6 && $4 >= 12) { newest = $0 } END { print newest }'
}

qemu_prepare() {
	host_needs qemu
	[ -x $virtiofsd ] || die "there is no $virtiofsd: this needs QEMU as Debian 12 has it"
	qemu_ready || alone qemu_unpack
}

qemu_ready() {
	kernel=$(find "$store" -maxdepth 1 -name 'kernel-*' ! -name '*.new' -print 2>/dev/null | sort -V | tail -n 1)
	[ -n "$kernel" ]
}

# qemu_unpack: the kernel and those of its modules that a test may ask for, in
# a directory of that version.
qemu_unpack() {
	local package deb new version m='./lib/modules/*/kernel'
	! qemu_ready || return 0
	package=$(qemu_package)
	[ -n "$package" ] || { apt_get update >&2 && package=$(qemu_package); }
	[ -n "$package" ] || die "apt knows no kernel of version 6.12 or later: is Debian 12's security suite in its sources?"
	deb=$(download "$package")
	say "unpacking $(basename "$deb")"
	new=$store/kernel-${package#linux-image-}.new
	rm -rf "$new"
	mkdir -p "$new"
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$new" --wildcards --no-wildcards-match-slash \
		'./boot/vmlinuz-*' './lib/modules/*/modules.*' "$m"/{crypto,lib,fs,arch/x86/crypto} \
		"$m"/drivers/{block,infiniband/core,infiniband/sw} "$m"/drivers/net/'*.ko*' \
		"$m"/net/{core,ipv4,ipv6,sched,bridge,802,8021q,llc,netfilter} || die "could not unpack $deb"
	version=$(basename "$new"/lib/modules/*)
	find "$new/lib" -name '*.ko.xz' -print0 | xargs -0r -P2 -n64 xz -d
	busybox depmod -b "$new" "$version"
	qemu_vmlinux "$new/boot/vmlinuz-$version" "$new/vmlinux"
	rm -r "${new:?}/boot"
	echo "$version" >"$new/version"
	kernel=${new%.new}
	mv "$new" "$kernel"
	rm -f "$deb"
}

# qemu_vmlinux BZIMAGE VMLINUX: takes the kernel out of its self-unpacking
# wrapper, which takes seconds to unpack on an emulated CPU. The wrapper's header
# says where the packed kernel is; its last four bytes are a length of their own.
qemu_vmlinux() {
	local sectors offset length
	sectors=$(od -An -tu1 -j497 -N1 "$1")
	offset=$(od -An -tu4 -j584 -N4 "$1")
	length=$(od -An -tu4 -j588 -N4 "$1")
	tail -c +$(((sectors + 1) * 512 + offset + 1)) "$1" | head -c $((length - 4)) >"$2.packed" || true
	case $(od -An -tx1 -N4 "$2.packed" | tr -d ' ') in
	28b52ffd) zstd -dcq "$2.packed" >"$2" ;;
	fd377a58) xz -dc --single-stream <"$2.packed" >"$2" ;;
	*) die "Debian packs its kernel in a new way" ;;
	esac
	rm "$2.packed"
	[ "$(od -An -tx1 -N4 "$2" | tr -d ' ')" = 7f454c46 ] || die "there is no kernel inside $1"
}

qemu_boot() {
	local quiet=quiet try
	[ -z "$verbose" ] || quiet=''
	begin $virtiofsd --socket-path="$run/root.sock" -o source=/ -o cache=always -o sandbox=chroot </dev/null >"$run/virtiofsd" 2>&1
	for ((try = 0; try < 500; try++)); do
		[ ! -S "$run/root.sock" ] || break
		sleep 0.02
	done
	[ -S "$run/root.sock" ] || die "virtiofsd did not start: $(tail -n 3 "$run/virtiofsd")"
	# One CPU: with two emulated ones about one start in fifty crashed. The CPU's
	# features that are left out are those that cost time when emulated.
	begin qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -smp 1 -m "$memory" \
		-accel tcg -cpu max,-la57,-pcid,-smap,-smep,-pku,-erms,-fsrm \
		-machine pc,memory-backend=ram -object "memory-backend-memfd,id=ram,size=${memory}M,share=on" \
		-chardev "socket,id=root,path=$run/root.sock" -device vhost-user-fs-pci,chardev=root,tag=root \
		-device virtio-serial-pci \
		-chardev "file,id=out,path=$run/stdout" -device virtserialport,chardev=out,nr=1 \
		-chardev "file,id=err,path=$run/stderr" -device virtserialport,chardev=err,nr=2 \
		-chardev "file,id=status,path=$run/status" -device virtserialport,chardev=status,nr=3 \
		-serial "file:$run/console" -kernel "$kernel/vmlinux" -append "$(
			printf '%s ' console=ttyS0 $quiet panic=-1 rootfstype=virtiofs root=root ro \
				"init=$tools/guest.d/init" "guest_run=$run" hostname=p2pfs-guest mitigations=off init_on_alloc=0 \
				tsc=reliable no_timer_check cryptomgr.notests random.trust_cpu=on initcall_blacklist=jent_mod_init
		)" </dev/null >"$run/monitor" 2>&1
}
