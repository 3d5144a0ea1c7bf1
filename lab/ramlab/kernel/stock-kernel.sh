#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Fetches one of Debian's own kernels into the cache and unpacks it there; nothing is installed.
#
# Usage: ramlab stock-kernel [--arch arm64] 6.1|6.12|7 [headers]
# Prints the directory: boot/vmlinuz-VERSION, boot/config-VERSION and lib/modules/VERSION as in the
# package, and initrd, which mounts the host's root file system as ramlab vm says in rootflags= (it
# is a module in these kernels). With "headers", prints the directory to build modules for it with
# (make -C), from Debian's own packages, for this machine's architecture only; status 77 if the
# mirror no longer has them.
# The versions below are those that the tests were written with; 7 is the newest that Debian builds,
# from trixie-backports. When a mirror has dropped one, the newest is taken and named. The generic
# flavour: the cloud flavour has no 9p and cannot mount the host's root.
set -euo pipefail
source "$(dirname "$0")/../../env"

usage="which kernel? ramlab stock-kernel [--arch arm64] 6.1, 6.12 or 7"
# Where devices of its virtual machine are.
arch=amd64 prefix='' buses=(virtio_pci)
if [ "${1:-}" = --arch ]; then
	[ "${2:-}" = arm64 ] || die "$usage"
	arch=arm64 prefix=arm64- buses=(virtio_mmio virtio_pci)
	shift 2
	[ $# = 1 ] || die "$usage"
fi
# Where its packages come from, and what its image consists of.
suites=(bookworm bookworm-backports) parts=(image)
case ${1:-} in
6.1)
	pinned=linux-image-6.1.0-54-$arch=6.1.190-1
	series="^linux-image-6\.1\.0-[0-9]+-$arch\$"
	;;
6.12)
	pinned=linux-image-6.12.95+deb12-$arch=6.12.95-1~bpo12+1
	series="^linux-image-6\.12\.[0-9]+\+deb12-$arch\$"
	;;
7)
	pinned=linux-image-7.3.4+deb13-$arch=7.3.4-1~bpo13+1
	series="^linux-image-7\.[0-9]+\.[0-9]+\+deb13-$arch\$"
	suites=(trixie-backports) parts=(base binary modules)
	# For busybox
	[ $arch = amd64 ] || suites+=(bookworm)
	;;
*) die "$usage" ;;
esac
folder=$RAMSLICE_CACHE/stock-kernels
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9

# A folder to work in, and a package list of our own: neither the machine's sources nor its lists
# change, and root is not needed.
prepare() {
	work=$(mktemp -d "$folder/fetch-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	local mirror security key='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
	mirror=$(mirror_of bookworm) security=$(mirror_of bookworm-security)
	[ -n "$mirror" ] || die "apt has no source for bookworm," \
		"whose mirror would have its kernels (see sources.list(5))"
	for suite in "${suites[@]}"; do
		echo "deb $key $mirror $suite main"
	done >"$work/sources.list"
	[[ ${suites[0]} != bookworm || -z $security ]] ||
		echo "deb $key $security bookworm-security main" >>"$work/sources.list"
	mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/package"
	private=(-o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
		-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root
		-o "APT::Architecture=$arch" -o "APT::Architectures=$arch")
	echo "fetching Debian's $1" >&2
	apt-get "${private[@]}" update -qq >&2 || echo "apt-get update complained; going on" >&2
}

# The headers of the kernel in $1, in a directory beside it. The package's links and Makefile expect
# to be in /usr.
headers() {
	local kernel version release there
	kernel=$(basename "$1") release=$(basename "$1"/lib/modules/*)
	version=${kernel#debian-*-} there=$folder/headers-$kernel
	if [ ! -e "$there" ]; then
		prepare "headers for its kernel $version"
		local kbuild=linux-kbuild-${release%-amd64}
		[[ $release != 6.1.* ]] || kbuild=linux-kbuild-6.1
		(cd "$work" && apt-get "${private[@]}" download -qq "linux-headers-$release=$version" \
			"linux-headers-${release%-amd64}-common=$version" "$kbuild" >&2) || {
			echo "the mirror has no headers for Debian's kernel $version any more:" \
				"no modules can be built for it" >&2
			exit 77
		}
		for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/package"; done
		grep -rlI -e /usr/src -e /usr/lib/linux-kbuild \
			"$work"/package/usr/src/*/{Makefile,.kernelvariables} 2>/dev/null |
			xargs -r sed -i "s,/usr/\(src\|lib/linux-kbuild\),$there/usr/\1,g"
		rm -rf "$work"/package/usr/share
		mv "$work/package" "$there"
	fi
	echo "$there/usr/src/linux-headers-$release"
}

# One that is there already, the pinned one or the newest of that time; not one that another state
# of this file has made, which may pin another or start it in another way.
made_by=$(sha256sum "${BASH_SOURCE[0]}" | cut -d' ' -f1)
there=$(find "$folder/" -maxdepth 1 -name "${prefix}debian-$1-*" | sort -V | tail -1)
if [ -e "$there/made-by" ] && [ "$(cat "$there/made-by")" != "$made_by" ]; then there=; fi
if [ "${2:-}" = headers ]; then
	[ -n "$there" ] || die "ramlab stock-kernel $1 comes first"
	headers "$there"
	exit
fi
if [ -n "$there" ]; then
	echo "$there"
	exit
fi

# The packages of an image, which later releases have split.
download() {
	local part packages=()
	for part in "${parts[@]}"; do packages+=("linux-$part-${1#linux-image-}"); done
	(cd "$work" && apt-get "${private[@]}" download -qq "${packages[@]}" >&2)
}

prepare "kernel ${pinned#*=} for $arch"
if ! download "$pinned" 2>/dev/null; then
	newest=$(apt-cache "${private[@]}" search --names-only "$series" |
		cut -d' ' -f1 | sort -V | tail -1)
	[ -n "$newest" ] || die "no package matches $series: is there a network?"
	echo "the mirror no longer has $pinned; taking $newest" >&2
	download "$newest" || die "cannot download $newest"
fi
for package in "$work"/linux-*.deb; do
	version=$(dpkg-deb -f "$package" Version)
	dpkg-deb -x "$package" "$work/package"
done
# Later releases have all of it in one directory of /usr.
if [ -d "$work/package/usr/lib/modules" ]; then
	mkdir -p "$work"/package/{boot,lib}
	mv "$work/package/usr/lib/modules" "$work/package/lib"
	kernel=$(basename "$work"/package/lib/modules/*)
	for file in vmlinuz config; do
		mv "$work/package/lib/modules/$kernel/$file" "$work/package/boot/$file-$kernel"
	done
fi
# What no virtual machine of ours has: three quarters of the files.
modules=$(echo "$work"/package/lib/modules/*)
rm -rf "$modules"/kernel/sound \
	"$modules"/kernel/drivers/{gpu,media,net,infiniband,staging,usb,iio,scsi,hid,mtd,isdn} \
	"$modules"/kernel/drivers/input/touchscreen
depmod -b "$work/package" "$(basename "$work"/package/lib/modules/*)"
rm -rf "$work/package/usr"

# --- the initial RAM disk ---
kernel=$(basename "$work"/package/lib/modules/*)
initrd=$work/initrd
mkdir -p "$initrd"/{bin,modules,proc,sys,dev,newroot}
if [ $arch = amd64 ]; then
	cp "$(command -v busybox)" "$initrd/bin/busybox"
else
	(cd "$work" && apt-get "${private[@]}" download -qq busybox-static >&2) ||
		die "cannot download busybox-static for $arch"
	dpkg-deb --fsys-tarfile "$work"/busybox-static_*.deb |
		tar -xO --wildcards './*bin/busybox' >"$initrd/bin/busybox"
	chmod +x "$initrd/bin/busybox"
fi
number=100
for name in unix "${buses[@]}" 9pnet_virtio 9p virtio_console virtio_blk; do
	needed=$(modprobe -d "$work/package" -S "$kernel" -C /var/empty --show-depends "$name" \
		2>/dev/null | awk '/^insmod/ { print $2 }') || true
	for module in $needed; do
		base=$(basename "${module%.xz}")
		compgen -G "$initrd/modules/*-$base" >/dev/null && continue
		case $module in
		*.xz) xz -dc "$module" >"$initrd/modules/$number-$base" ;;
		*) cp "$module" "$initrd/modules/$number-$base" ;;
		esac
		number=$((number + 1))
	done
done
cat >"$initrd/init" <<'END'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do /bin/busybox insmod "$module"; done
for word in $(/bin/busybox cat /proc/cmdline); do
	case $word in
	init=*) init=${word#init=} ;;
	rootflags=*) flags=${word#rootflags=} ;;
	esac
done
/bin/busybox mount -t 9p -o "ro,$flags" /dev/root /newroot || /bin/busybox poweroff -f
# virtme's init runs udev only for the names of its virtio ports: half a minute when emulated.
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mkdir -p /dev/virtio-ports
for port in /sys/class/virtio-ports/*; do
	/bin/busybox ln -s "../${port##*/}" "/dev/virtio-ports/$(/bin/busybox cat "$port/name")"
done
/bin/busybox umount /sys
/bin/busybox mount -o bind /dev/null /newroot/usr/bin/udevadm
/bin/busybox mount -t tmpfs tmpfs /newroot/usr/lib/tmpfiles.d
/bin/busybox umount /proc
/bin/busybox umount /dev
exec /bin/busybox switch_root /newroot "$init" "$@"
END
chmod +x "$initrd/init"
(cd "$initrd" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/package/initrd"
echo "$made_by" >"$work/package/made-by"
rm -rf "$folder/${prefix}debian-$1-$version"
mv "$work/package" "$folder/${prefix}debian-$1-$version"
echo "$folder/${prefix}debian-$1-$version"
