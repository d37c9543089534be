// Package jail is what the commands that start jails share: the flags that
// describe a jail, the policy that permits it, the choice among the backends of
// this host, and advice where none can make it.
//
//	flags, settings ──▶ jobs.Sandbox ──▶ policy ──▶ backend ──▶ sandbox.Start
//
// The package starts no jail itself. It tries backends only when a chooser is
// asked for one.
package jail

import (
	"context"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
)

// BackendNames are the words that name a backend.
func BackendNames() []string { return []string{"auto", "bwrap", "systemd", "oci", "seatbelt", "none"} }

// A Chooser returns the backend with a name, or the host's best one for auto.
type Chooser func(name string) (sandbox.Backend, error)

// Choose returns a chooser that tries the permitted backends once to find the
// best one; no names permit all. A preferred backend other than auto is the
// best one.
func Choose(ctx context.Context, preferred string, permitted []string) Chooser {
	auto := sync.OnceValues(func() (sandbox.Backend, error) {
		if preferred != backends.Auto || len(permitted) == 0 {
			return backends.New(ctx, preferred)
		}
		return backends.First(ctx, permitted...)
	})
	return func(name string) (sandbox.Backend, error) {
		if name == "" || name == backends.Auto {
			return auto()
		}
		return backends.New(ctx, strings.ToLower(name))
	}
}

// Advice names the check of doctor that the error of a jail belongs to, and
// its fix. It is empty for an error that no check is about.
func Advice(err error) string {
	f, known := backends.Diagnose(err)
	if !known {
		return ""
	}
	return "doctor check " + f.Check + ": " + f.Fix
}
