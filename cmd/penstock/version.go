package main

import "runtime/debug"

// version is what the build gives; empty outside of make build.
var version string

// release is the version, as far as this build knows it.
func release() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "devel"
}
