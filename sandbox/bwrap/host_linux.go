package bwrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"github.com/penstock-run/penstock/sandbox/seccomp"
	"golang.org/x/sys/unix"
)

// sharedEtc are directories of /etc without secrets that programs need. Each
// is a mount, and bubblewrap reads the table of mounts again for each.
var sharedEtc = []string{"ssl", "pki", "crypto-policies", "alternatives", "fonts"}

// copiedEtc are files that a jail gets a copy of.
var copiedEtc = []string{
	"ld.so.cache", "ld.so.conf", "localtime", "timezone", "nsswitch.conf", "protocols", "services", "mime.types",
	"os-release", "debian_version", "gai.conf",
}

// hidden are files of /proc that tell about the machine.
var hidden = []string{"/proc/cmdline", "/proc/kallsyms"}

// The owner of /proc's files outside is root. Where the agent is root
// outside too, it could read and write these without any privilege.
var (
	hiddenFromRoot = []string{
		"/proc/keys", "/proc/timer_list", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/slabinfo",
		"/proc/vmallocinfo",
	}
	readOnlyToRoot = []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/fs", "/proc/acpi", "/proc/scsi"}
)

// readHost looks at what compile needs to know.
func readHost(spec sandbox.Spec, init string) (host, error) {
	h := host{arch: seccomp.Native()}
	var err error
	if h.init, err = resolve("Init", init); err != nil {
		return h, err
	}
	for field, p := range map[string]struct {
		path string
		to   *string
	}{"Workspace": {spec.Workspace, &h.workspace}, "Home": {spec.Home, &h.home}} {
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
		h.mounts = append(h.mounts, m)
	}
	return h, h.readSystem(spec)
}

func (h *host) readSystem(spec sandbox.Spec) error {
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
			h.links = append(h.links, sandbox.Mount{Source: to, Target: name})
		default:
			h.shared = append(h.shared, sandbox.Mount{Source: name, Target: name})
		}
	}
	etc := sharedEtc
	if spec.Preset == sandbox.PresetBrowser {
		etc = append([]string{"chromium", "chromium.d", "opt/chrome"}, etc...)
	}
	for _, name := range etc {
		if p, err := filepath.EvalSymlinks("/etc/" + name); err == nil {
			h.shared = append(h.shared, sandbox.Mount{Source: p, Target: "/etc/" + name})
		}
	}
	for _, name := range copiedEtc {
		if b, err := os.ReadFile("/etc/" + name); err == nil {
			h.copied = append(h.copied, sandbox.File{Path: "/etc/" + name, Data: b})
		}
	}
	h.hidden = existing(hidden)
	if os.Geteuid() == 0 {
		h.hidden = append(h.hidden, existing(hiddenFromRoot)...)
		h.readOnly = existing(readOnlyToRoot)
	}
	if spec.Network == sandbox.NetworkFull {
		// Absent on hosts that resolve names in other ways.
		h.hosts, _ = os.ReadFile("/etc/hosts")
		h.resolv, _ = os.ReadFile("/etc/resolv.conf")
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

// features lists what a jail enforces here, if one can be made.
func features() []sandbox.Feature {
	f := []sandbox.Feature{
		sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork,
		sandbox.FeatureSyscalls, sandbox.FeaturePrivileges, sandbox.FeatureTemporary, sandbox.FeatureKill,
		sandbox.FeatureFileSize, sandbox.FeatureOpenFiles,
	}
	if version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(nil)), 0,
		unix.LANDLOCK_CREATE_RULESET_VERSION); errno == 0 && version >= 1 {
		f = append(f, sandbox.FeatureLandlock)
	}
	pids := false
	for _, c := range cgroup.Supported() {
		f = append(f, sandbox.Feature(c))
		pids = pids || c == cgroup.PIDs
	}
	// The kernel counts processes for each user of a namespace, but never
	// those that are root outside.
	if !pids && os.Geteuid() != 0 {
		f = append(f, sandbox.FeaturePIDs)
	}
	return f
}
