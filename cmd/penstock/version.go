package main

import (
	"cmp"
	"runtime/debug"

	"github.com/penstock-run/penstock/cmd/penstock/aboutcmd"
)

// What the build gives; empty outside of make build.
var (
	version string
	commit  string
	date    string // of the commit, RFC 3339
)

// build is what this program knows of how it was built.
func build() aboutcmd.Build {
	b := aboutcmd.Build{Version: version, Commit: commit, Date: date, Modules: []aboutcmd.Module{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(version, "devel")
		return b
	}
	b.Version = cmp.Or(version, info.Main.Version, "devel")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, s.Value)
		case "vcs.time":
			b.Date = cmp.Or(b.Date, s.Value)
		}
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Modules = append(b.Modules, aboutcmd.Module{Path: m.Path, Version: m.Version})
	}
	return b
}

// release is the version, as far as this build knows it.
func release() string { return build().Version }
