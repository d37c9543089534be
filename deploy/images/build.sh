#!/usr/bin/env bash
# build.sh PROGRAM VERSION DIR: makes the images of server and worker, each an archive for
# "docker load" in DIR, of a program for Linux that is built already; no engine and no
# registry is asked, only Debian's mirrors. The same program, version, packages of Debian
# and SOURCE_DATE_EPOCH (default: the last commit's time) make the same files.
#
#   deploy/images/build.sh bin/penstock v1.0.0 bin/images
#
# server.json and worker.json say how the images run; the worker has the root of a small
# Debian below the program, and tini as the first process, since processes of jails that
# have ended are left to that. Needs mmdebstrap, jq, and the right to make a root: be root, or
# a user who may make namespaces. The root of Debian stays in the cache directory for a day;
# FRESH=1 makes it anew.
set -euo pipefail
[ $# -eq 3 ] || {
	sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
program=$(realpath "$1") version=$2
mkdir -p "$3"
out=$(realpath "$3")
cd "$(dirname "$0")"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
# A tag has fewer letters than a version.
tag=${version//[^A-Za-z0-9_.-]/-}
suite=bookworm packages=bubblewrap,ca-certificates,git,openssh-client,tini
# That Debian has one time, so that the layer with it is the same for all versions.
debian_epoch=1686355200
uid=10001
arch=$(dpkg --print-architecture)

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

cache=${XDG_CACHE_HOME:-$HOME/.cache}/penstock-images
debian=$cache/$suite-$arch-$(printf %s "$packages" | sha256sum | cut -c1-16).tar
if [ -n "${FRESH:-}" ] || [ -z "$(find "$debian" -mtime -1 2>/dev/null)" ]; then
	mkdir -p "$cache"
	SOURCE_DATE_EPOCH=$debian_epoch mmdebstrap --quiet --variant=minbase --include="$packages" \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		"$suite" "$work/new.tar"
	mv "$work/new.tar" "$debian"
fi

fixed=(--sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --numeric-owner)
pack() { # ROOT FILE: what is below the data directory belongs to the user of the image
	tar -C "$1" "${fixed[@]}" --owner=0 --group=0 --exclude=./var/lib/penstock -cf "$2" .
	tar -C "$1" "${fixed[@]}" --owner=$uid --group=$uid -rf "$2" ./var/lib/penstock
}

layer() { # IMAGE: the program, its user and its data directory; the server needs some files more
	local root=$work/$1
	install -d "$root" "$root/etc" "$root/usr" "$root/usr/bin" "$root/var" "$root/var/lib"
	install -d -m 700 "$root/var/lib/penstock"
	install -m 755 "$program" "$root/usr/bin/penstock"
	if [ "$1" = server ]; then
		install -d -m 1777 "$root/tmp"
		install -d "$root/etc/ssl" "$root/etc/ssl/certs"
		tar -xOf "$debian" ./etc/ssl/certs/ca-certificates.crt >"$root/etc/ssl/certs/ca-certificates.crt"
		echo "root:x:0:0:root:/:/sbin/nologin" >"$root/etc/passwd"
		echo "root:x:0:" >"$root/etc/group"
	else
		tar -xOf "$debian" ./etc/passwd >"$root/etc/passwd"
		tar -xOf "$debian" ./etc/group >"$root/etc/group"
	fi
	echo "penstock:x:$uid:$uid:Penstock:/var/lib/penstock:/sbin/nologin" >>"$root/etc/passwd"
	echo "penstock:x:$uid:" >>"$root/etc/group"
	chmod 644 "$root/etc/passwd" "$root/etc/group"
	pack "$root" "$work/$1.tar"
}

image() { # IMAGE LAYER...: the archive, with the layers from the bottom up
	local name=$1 dir=$work/archive sums=() files=() file
	shift
	rm -rf "$dir"
	mkdir "$dir"
	for file; do
		sums+=("$(sha256sum "$file" | cut -c1-64)")
		files+=("${sums[-1]}.tar")
		ln "$file" "$dir/${files[-1]}" 2>/dev/null || cp "$file" "$dir/${files[-1]}"
	done
	jq --compact-output --arg arch "$arch" --arg version "$version" --argjson epoch "$SOURCE_DATE_EPOCH" '($epoch | todate) as $created | {
		architecture: $arch, os: "linux", created: $created,
		config: (.Labels += {
			"org.opencontainers.image.version": $version, "org.opencontainers.image.created": $created,
			"org.opencontainers.image.source": "https://github.com/penstock-run/penstock", "org.opencontainers.image.licenses": "Apache-2.0"
		}),
		rootfs: {type: "layers", diff_ids: ($ARGS.positional | map("sha256:" + .))},
		history: ($ARGS.positional | map({created: $created, created_by: "deploy/images/build.sh"}))
	}' "$name.json" --args "${sums[@]}" >"$dir/config"
	local id
	id=$(sha256sum "$dir/config" | cut -c1-64)
	mv "$dir/config" "$dir/$id.json"
	jq --null-input --compact-output '[{Config: $ARGS.positional[0], RepoTags: [$ARGS.positional[1]], Layers: $ARGS.positional[2:]}]' \
		--args "$id.json" "penstock/$name:$tag" "${files[@]}" >"$dir/manifest.json"
	chmod 644 "$dir"/*
	tar -C "$dir" "${fixed[@]}" --owner=0 --group=0 -cf "$out/penstock-$name.tar" manifest.json "$id.json" "${files[@]}"
	# Docker's name of it, whatever engine loads it.
	echo "sha256:$id penstock/$name:$tag"
}

layer server
layer worker
image server "$work/server.tar"
image worker "$debian" "$work/worker.tar"
