// Package systemd has the files of services under systemd: units, users, directories and
// settings. The command install writes them; the Debian and RPM packages contain them.
package systemd

import "embed"

// Files are the files of this directory, by name. The units name the program as /usr/bin/penstock.
//
//go:embed *.service *.conf *.yaml
var Files embed.FS
