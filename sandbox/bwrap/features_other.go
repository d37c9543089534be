//go:build !linux

package bwrap

import "github.com/penstock-run/penstock/sandbox"

func features() []sandbox.Feature { return nil }

func eachProcess(sandbox.Limits) uint64 { return 0 }

func mayEnter() bool { return false }
