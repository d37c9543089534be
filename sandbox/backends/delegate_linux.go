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
// the process started before stays where it is. A service of the system stays within
// limits that it may have: it moves into a leaf of its group, if its unit delegates that.
//
// Where the limits can be had without that, it does nothing, and moved is false.
// An error says why this host has none; the runner then watches the limits of
// its jails. Call it before the first jail, and before asking a backend what it
// enforces.
func Delegate(ctx context.Context) (moved bool, err error) { return cgroup.Delegate(ctx) }
