package backends

import (
	"context"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
)

// Delegate makes limits of memory, processes and processors possible for a
// user who is not root, on a host whose control groups are of version 2: it
// asks the user's service manager for a group of this process's own. The
// process is moved there, out of the session of its login; it ends with the
// manager, which without lingering is when the user's last session ends. What
// the process started before stays where it is. A service of the system is not
// moved, out of limits that it may have: its unit delegates.
//
// Where the limits can be had without, it does nothing, and moved is false. An
// error says why this host has none; jails then have their limits watched. It
// is called before the first jail, and before a backend is asked what it
// enforces.
func Delegate(ctx context.Context) (moved bool, err error) { return cgroup.Delegate(ctx) }
