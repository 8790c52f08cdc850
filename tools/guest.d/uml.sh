# shellcheck shell=bash
# shellcheck disable=SC2154 # store, run, ... are tools/guest's
# User-mode Linux, built from Debian's kernel source. Sourced by tools/guest.

# A change of what follows that must make a new kernel raises this number.
uml_recipe=1

uml_dir() { printf '%s\n' "${P2PFS_GUEST_UML:-$store/uml}"; }

# uml_ready: one is here, built from this recipe, or given by P2PFS_GUEST_UML.
uml_ready() {
	local dir
	dir=$(uml_dir)
	if [ -n "${P2PFS_GUEST_UML:-}" ]; then
		[ -x "$dir/linux" ] || [ -f "$dir/linux.xz" ] || die "P2PFS_GUEST_UML: there is neither linux nor linux.xz in $dir"
		return 0
	fi
	[ -x "$dir/linux" ] && [ "$(cat "$dir/recipe" 2>/dev/null)" = "$uml_recipe" ]
}

uml_prepare() {
	host_needs uml
	uml_ready || alone uml_build
	kernel=$(uml_dir)
	if [ ! -x "$kernel/linux" ]; then
		packed=$kernel/linux.xz
		kernel=$store/uml-given
		uml_unpacked || alone uml_unpack
	fi
}

# uml_unpack: a packed one that was given goes beside our own.
uml_unpack() {
	! uml_unpacked || return 0
	mkdir -p "$kernel"
	xz -dc "$packed" >"$kernel/linux.new" || die "could not unpack $packed"
	chmod 755 "$kernel/linux.new"
	mv "$kernel/linux.new" "$kernel/linux"
}

uml_unpacked() { [ -x "$kernel/linux" ] && [ ! "$packed" -nt "$kernel/linux" ]; }

# uml_build: each step leaves a directory that is whole under its name, so that
# a build that was broken off goes on where it was.
uml_build() {
	local src=$store/src obj=$store/obj new=$store/uml.new log=$store/build.log deb flags
	! uml_ready || return 0
	host_needs uml-build
	deb=$(download linux-source-6.12)
	if [ ! -d "$src" ]; then
		say "unpacking $(basename "$deb")"
		rm -rf "$src.new" "$obj"
		mkdir -p "$src.new"
		dpkg-deb --fsys-tarfile "$deb" | tar -xO --wildcards '*/linux-source-*.tar.xz' |
			tar -xJ -C "$src.new" --strip-components=1 --wildcards --no-wildcards-match-slash "${uml_unused[@]/#/--exclude=}" ||
			die "could not unpack $deb"
		mv "$src.new" "$src"
	fi
	mkdir -p "$obj"
	flags=(-s -C "$src" "O=$obj" ARCH=um "-j$(nproc)")
	say "building user-mode Linux; a quarter of an hour of one CPU (log: $log)"
	{
		make "${flags[@]}" defconfig && uml_config >>"$obj/.config" && make "${flags[@]}" olddefconfig &&
			uml_check "$obj/.config" && make "${flags[@]}" linux
	} >"$log" 2>&1 || {
		tail -n 20 "$log" >&2
		die "could not build user-mode Linux"
	}
	rm -rf "$new"
	mkdir "$new"
	strip -o "$new/linux" "$obj/linux"
	cp "$obj/.config" "$new/config"
	make -s -C "$src" O="$obj" ARCH=um kernelrelease >"$new/version"
	echo $uml_recipe >"$new/recipe"
	rm -rf "$store/uml"
	mv "$new" "$store/uml"
	rm -rf "$src" "$obj" "$store/deb/linux-source-"*
	say "user-mode Linux $(cat "$store/uml/version") is ready in $store/uml"
}

# What the source has and this build never looks at.
uml_unused=('*/drivers/gpu/*/*.[ch]' '*/drivers/gpu/*/*/*.[ch]' '*/drivers/media/*/*.[ch]' '*/sound/*/*.[ch]' '*/tools/testing/*/*.[ch]' '*/Documentation/*/*.rst')

# uml_config: the changes to UML's own default. RDMA wants PCI, DMA and I/O
# memory, which UML has none of; PCI over virtio, never attached to anything,
# brings their stubs. There are no modules: all is in the program.
uml_config() {
	local on off name
	on="STATIC_LINK HOSTFS SSL
		TMPFS TMPFS_POSIX_ACL TMPFS_XATTR DEVTMPFS OVERLAY_FS FUSE_FS FUSE_PASSTHROUGH EXT4_FS BLK_DEV_LOOP
		NAMESPACES PID_NS USER_NS CGROUPS MEMCG CGROUP_PIDS SYSVIPC POSIX_MQUEUE MEMFD_CREATE
		NET INET IPV6 DUMMY VETH IP_ADVANCED_ROUTER IP_MULTIPLE_TABLES NET_SCHED NET_SCH_NETEM NET_SCH_TBF
		VIRTIO_UML UML_PCI_OVER_VIRTIO INFINIBAND INFINIBAND_USER_ACCESS INFINIBAND_ADDR_TRANS RDMA_RXE RDMA_SIW
		PRINTK_TIME DEBUG_INFO_NONE"
	off="MODULES DEBUG_KERNEL DEBUG_FS FTRACE WLAN WIRELESS ETHERNET SOUND INPUT_KEYBOARD INPUT_MOUSE SERIO HID VT USB_SUPPORT
		HWMON THERMAL WATCHDOG SCSI PPS PTP_1588_CLOCK RTC_CLASS VIRTIO_MENU CRYPTO_HW RAID6_PQ BLK_DEV_UBD BLK_DEV_NBD
		IOSCHED_BFQ MQ_IOSCHED_KYBER BTRFS_FS REISERFS_FS XFS_FS AUTOFS_FS ISO9660_FS QUOTA SECURITY KEYS BPF_SYSCALL
		NETFILTER INET_DIAG IPV6_SIT NET_IPIP UML_NET PPP SLIP"
	for name in $on; do echo "CONFIG_$name=y"; done
	for name in $off; do echo "# CONFIG_$name is not set"; done
	echo 'CONFIG_UML_PCI_OVER_VIRTIO_DEVICE_ID=1234'
}

# uml_check CONFIG: what a later kernel may silently drop is found before it
# was built for nothing.
uml_check() {
	local name
	for name in HOSTFS SSL OVERLAY_FS FUSE_FS VETH NET_SCH_NETEM INFINIBAND_USER_ACCESS INFINIBAND_ADDR_TRANS RDMA_RXE RDMA_SIW; do
		grep -q "^CONFIG_$name=y" "$1" || {
			echo "the kernel's configuration lost $name"
			return 1
		}
	done
}

# uml_memory: a directory that a file as large as the guest's memory fits in and
# that programs may be mapped from: containers give /dev/shm 64 MB.
uml_memory() {
	local dir free
	for dir in /dev/shm "${TMPDIR:-/tmp}"; do
		free=$(df --output=avail -m "$dir" 2>/dev/null | tail -n 1) || continue
		if [ "$free" -gt "$memory" ] && ! findmnt -no OPTIONS -T "$dir" | grep -qw noexec; then
			printf '%s\n' "$dir"
			return 0
		fi
	done
	die "there are no $memory MB for the guest's memory, in /dev/shm nor in ${TMPDIR:-/tmp}"
}

uml_boot() {
	local out err status quiet=quiet dir cpu
	dir=$(uml_memory)
	[ -z "$verbose" ] || quiet=''
	exec {out}>"$run/stdout" {err}>"$run/stderr" {status}>"$run/status"
	# The kernel and its programs take turns on the guest's one processor. On two of
	# this machine's they are half as fast where those sleep between the turns: RDMA.md,
	# Beside ib_read_bw.
	cpu=$(taskset -cp $$)
	# The C library of the kernel's own process registers a place for restartable
	# sequences; processes of the guest start as copies of it without that place,
	# and die of it.
	TMPDIR=$dir GLIBC_TUNABLES=glibc.pthread.rseq=0 begin taskset -c "${cpu##*[ ,-]}" "$kernel/linux" "mem=${memory}M" \
		root=/dev/root rootfstype=hostfs rootflags=/ ro "init=$tools/guest.d/init" "guest_run=$run" \
		hostname=p2pfs-guest panic=-1 ${quiet:+"$quiet"} "uml_dir=$run" umid=uml \
		con=null con0=null,fd:9 ssl=null "ssl1=null,fd:$out" "ssl2=null,fd:$err" "ssl3=null,fd:$status" \
		</dev/null 9>>"$run/console" >"$run/monitor" 2>&1
	exec {out}>&- {err}>&- {status}>&-
}
