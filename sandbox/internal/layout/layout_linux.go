package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/rootfs"
)

// sharedEtc are directories of /etc without secrets that programs need. Each
// is a mount, which costs time.
var sharedEtc = []string{"ssl", "pki", "crypto-policies", "alternatives", "fonts", "chromium", "chromium.d", "opt/chrome"}

// copiedEtc are files that a jail gets a copy of.
var copiedEtc = []string{
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/localtime", "/etc/timezone", "/etc/nsswitch.conf", "/etc/protocols", "/etc/services", "/etc/mime.types",
	"/etc/os-release", "/etc/debian_version", "/etc/gai.conf",
}

// copies are the contents of such files: a hundred kilobytes, which each jail keeps for as long as it runs.
var copies = memory[sandbox.File]{of: func(path string) (sandbox.File, error) {
	data, err := os.ReadFile(path)
	return sandbox.File{Path: path, Data: data}, err
}}

// Read looks at the host for a jail with spec, and at the places that it
// names. It changes nothing.
func Read(spec sandbox.Spec, init string) (Host, error) {
	var h Host
	var err error
	if h.Init, err = resolve("Init", init); err != nil {
		return h, err
	}
	for field, p := range map[string]struct {
		path string
		to   *string
	}{"Workspace": {spec.Workspace, &h.Workspace}, "Home": {spec.Home, &h.Home}} {
		if p.path == "" {
			continue
		}
		if *p.to, err = resolveDir(field, p.path); err != nil {
			return h, err
		}
	}
	for i, m := range spec.Mounts {
		field := fmt.Sprintf("Mounts[%d].", i)
		if m.Source, err = resolve(field+"Source", m.Source); err != nil {
			return h, err
		}
		if strings.HasPrefix(m.Target, "/usr/") && notExist(m.Target) {
			return h, &sandbox.FieldError{Field: field + "Target", Value: m.Target,
				Reason: "does not exist in /usr, which the host shares read-only"}
		}
		h.Mounts = append(h.Mounts, m)
	}
	return h, h.readSystem(spec)
}

func (h *Host) readSystem(spec sandbox.Spec) error {
	for _, name := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		st, err := os.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case st.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}
			h.Links = append(h.Links, sandbox.Mount{Source: to, Target: name})
		default:
			h.Shared = append(h.Shared, sandbox.Mount{Source: name, Target: name})
		}
	}
	for _, name := range sharedEtc {
		if p, err := filepath.EvalSymlinks("/etc/" + name); err == nil {
			h.Shared = append(h.Shared, sandbox.Mount{Source: p, Target: "/etc/" + name})
		}
	}
	h.Copied = copies.read(copiedEtc)
	h.Packages = func() []Digest { return digests.read(installed) }
	h.Hidden = existing(rootfs.Hidden)
	if os.Geteuid() == 0 {
		h.Hidden = append(h.Hidden, existing(rootfs.HiddenFromRoot)...)
		h.ReadOnly = existing(rootfs.ReadOnlyToRoot)
	}
	if spec.Network == sandbox.NetworkFull {
		// Absent on hosts that resolve names in other ways.
		h.Hosts, _ = os.ReadFile("/etc/hosts")
		h.Resolv, _ = os.ReadFile("/etc/resolv.conf")
	}
	return nil
}

func resolve(field, path string) (string, error) {
	p, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", &sandbox.FieldError{Field: field, Value: path, Reason: "cannot be used: " + reason(err)}
	}
	return p, nil
}

func resolveDir(field, path string) (string, error) {
	p, err := resolve(field, path)
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(p); err != nil || !st.IsDir() {
		return "", &sandbox.FieldError{Field: field, Value: path, Reason: "is not a directory"}
	}
	if p == "/" {
		return "", &sandbox.FieldError{Field: field, Value: path, Reason: "is the whole host"}
	}
	return p, nil
}

func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

func existing(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), notExist)
}

func notExist(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
