package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Delegate asks the user's service manager for a group of this process's own,
// in which groups for jails can be made afterwards. The process is moved, and what
// it has started before is not: out of the session of a login into a scope of
// the user's manager, which ends with the last process in it. A service of the
// system stays in its group, where its administrator may have limited it: in a leaf
// of it, where the unit delegates the group (Delegate=yes).
//
// Where groups can be made already it does nothing, and says that nothing was
// moved. It is called before the first jail is started.
func Delegate(ctx context.Context) (moved bool, err error) {
	if Can(Memory) && Can(PIDs) {
		return false, nil
	}
	root, err := unified()
	if err != nil {
		return false, err
	}
	if undelegated := inSession(); undelegated != nil {
		return intoLeaf(root, undelegated)
	}
	runtime, err := manager(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	scope := fmt.Sprintf("penstock-%d-%d.scope", os.Getpid(), time.Now().UnixNano())
	if err := startScope(ctx, scope, runtime); err != nil {
		return false, fmt.Errorf("ask the user's service manager: %w", err)
	}
	own, err := arrived(ctx, scope)
	if err != nil {
		return false, err
	}
	if err := moveIntoLeaf(filepath.Join(root, own)); err != nil {
		return true, err
	}
	if len(Supported()) == 0 {
		return true, errors.New("no controllers are delegated to the user's service manager: Delegate= of user@.service")
	}
	return true, nil
}

// intoLeaf moves a service whose unit delegates its group into a leaf of that group, and
// returns otherwise if it does not. Units of systemd 254 and newer may say this themselves
// (DelegateSubgroup=).
func intoLeaf(root string, otherwise error) (moved bool, err error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false, err
	}
	own := ownPath(string(b), "")
	group := filepath.Join(root, own)
	if own == "/" || !delegated(group) {
		return false, otherwise
	}
	if err := moveIntoLeaf(group); err != nil {
		return false, err
	}
	return true, nil
}

// delegated reports whether a service manager has handed a group over to this process's
// user. Root, who could write any group, makes its own elsewhere.
func delegated(group string) bool {
	if os.Geteuid() == 0 {
		return false
	}
	for _, name := range []string{".", "cgroup.procs", "cgroup.subtree_control"} {
		if unix.Access(filepath.Join(group, name), unix.W_OK) != nil {
			return false
		}
	}
	return true
}

// moveIntoLeaf moves this process into a new child of a group: one with processes cannot
// give controllers to its children.
func moveIntoLeaf(group string) error {
	leaf := filepath.Join(group, "worker")
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("delegated control group: %w", err)
	}
	if err := put(filepath.Join(leaf, "cgroup.procs"), strconv.Itoa(os.Getpid())); err != nil {
		return fmt.Errorf("delegated control group: %w", err)
	}
	found.forget()
	return nil
}

// unified returns where the tree of version 2 is. In one of version 1, and in
// a mixed one, a user's manager has no controllers.
func unified() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for _, h := range hierarchies(string(mounts)) {
		b, err := os.ReadFile(filepath.Join(h.root, "cgroup.controllers"))
		if h.v2 && err == nil && slices.Contains(strings.Fields(string(b)), Memory) {
			return h.root, nil
		}
	}
	return "", errors.New("control groups of version 1 are not delegated to users; boot with systemd.unified_cgroup_hierarchy=1")
}

// inSession reports whether this process belongs to a login of its user.
func inSession() error {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	if own := ownPath(string(b), ""); !strings.Contains(own, fmt.Sprintf("/user-%d.slice/", os.Geteuid())) {
		return fmt.Errorf("%s is not the session of a login: a service is delegated its groups by its unit", own)
	}
	return nil
}

// manager returns the directory in which the user's manager is reached. It has
// to see this process by the same number, or it would move another one: for a
// process of another process table the kernel says 0.
func manager(ctx context.Context) (runtime string, err error) {
	runtime = "/run/user/" + strconv.Itoa(os.Geteuid())
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", runtime+"/bus")
	if err != nil {
		return "", fmt.Errorf("the user has no service manager: %w; as root: loginctl enable-linger %d, and install dbus-user-session", err, os.Geteuid())
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "", err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || failed != nil {
		return "", errors.Join(err, failed)
	}
	if peer.Pid <= 0 || int(peer.Uid) != os.Geteuid() {
		return "", errors.New("the user's service manager is outside of this container")
	}
	return runtime, nil
}

// startScope asks for the scope; the manager moves the process a moment later.
// Limits of tasks are the jails' own.
func startScope(ctx context.Context, scope, runtime string) error {
	cmd := exec.CommandContext(ctx, "busctl", "--user", "--quiet", "call",
		"org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager",
		"StartTransientUnit", "ssa(sv)a(sa(sv))", scope, "fail", "5",
		"PIDs", "au", "1", strconv.Itoa(os.Getpid()),
		"Delegate", "b", "true",
		"CollectMode", "s", "inactive-or-failed",
		"TasksMax", "t", "18446744073709551615",
		"Description", "s", "penstock and its jails",
		"0")
	cmd.Env, cmd.WaitDelay = []string{"XDG_RUNTIME_DIR=" + runtime}, time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// arrived waits until this process is in the scope, and returns its group.
func arrived(ctx context.Context, scope string) (string, error) {
	for {
		b, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return "", err
		}
		if own := ownPath(string(b), ""); filepath.Base(own) == scope {
			return own, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("the user's service manager did not move this process into %s: %w", scope, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
