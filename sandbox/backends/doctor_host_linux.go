package backends

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/sandbox"
)

func landlock() Finding {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || version < 1 {
		return Finding{Check: "landlock", Level: LevelAdvice, Message: "the kernel has no Landlock", Price: "files have one wall instead of two",
			Fix: "boot with lsm=landlock,... where the kernel has it (Linux 5.13)"}
	}
	return Finding{Check: "landlock", Level: LevelOK, Message: fmt.Sprintf("a second wall around files, version %d", version)}
}

// overlay shows one directory through another, as a workspace that is no copy
// does.
func overlay(ctx context.Context, jail sandbox.Backend, dir string) Finding {
	f := Finding{Check: "overlay", Level: LevelAdvice, Fix: overlayFix,
		Price: "a workspace is a copy: seconds for a repository of 50,000 files, and its size on disk, instead of a millisecond"}
	root, err := os.MkdirTemp(dir, ".doctor-*")
	if err != nil {
		f.Message = "cannot be tried: " + err.Error()
		return f
	}
	defer os.RemoveAll(root)
	lower, upper := filepath.Join(root, "lower"), filepath.Join(root, "upper")
	for _, err := range []error{os.Mkdir(lower, 0o755), os.Mkdir(upper, 0o755), os.WriteFile(filepath.Join(lower, "f"), []byte("below\n"), 0o644)} {
		if err != nil {
			f.Message = "cannot be tried: " + err.Error()
			return f
		}
	}
	out, exit, err := sandbox.Output(ctx, jail, sandbox.Spec{
		Args: []string{"sh", "-c", "cat f && echo above >f && cat f"}, Workspace: upper, Lower: []string{lower},
	})
	below, errRead := os.ReadFile(filepath.Join(lower, "f"))
	if err != nil || !exit.Success() || string(out) != "below\nabove\n" || errRead != nil || string(below) != "below\n" {
		f.Message = fmt.Sprintf("a workspace over a directory of %s does not work: %v, %v", root, exit, err)
		return f
	}
	return Finding{Check: "overlay", Level: LevelOK, Message: "a workspace can show a directory without copying it"}
}

// quota looks whether the file system around dir can limit a directory.
func quota(dir string) Finding {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Finding{Check: "quota", Level: LevelAdvice, Message: err.Error()}
	}
	if dir == "" {
		dir = os.TempDir()
	}
	return quotaOf(string(b), dir)
}

// quotaOf is the pure part. Lines of mountinfo: proc_pid_mountinfo(5).
func quotaOf(mountinfo, dir string) Finding {
	place, kind, options := "", "", ""
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(rest) < 3 {
			continue
		}
		at := fields[4]
		if (at == "/" || dir == at || strings.HasPrefix(dir, at+"/")) && len(at) >= len(place) {
			place, kind, options = at, rest[0], rest[2]
		}
	}
	for option := range strings.SplitSeq(options, ",") {
		if option == "prjquota" || option == "pquota" {
			return Finding{Check: "quota", Level: LevelOK, Message: "the file system at " + place + " has project quotas"}
		}
	}
	f := Finding{Check: "quota", Level: LevelAdvice, Message: fmt.Sprintf("the file system at %s (%s) has no project quotas", place, kind),
		Price: "disk limits are watched, not enforced: a job can exceed them for a moment", Fix: "put the data directory on a volume of its own"}
	switch kind {
	case "ext4":
		f.Fix = "tune2fs -O quota,project on the unmounted device, then mount with prjquota; or put the data directory on a volume of its own"
	case "xfs":
		f.Fix = "mount with prjquota; or put the data directory on a volume of its own"
	}
	return f
}

// hostFindings looks at what matters beyond one jail. root is the host's "/".
func hostFindings(root fs.FS, uid int) []Finding {
	findings := []Finding{userFinding(uid)}
	for _, s := range []struct {
		check, file, good, set, message string
	}{
		{"tiocsti", "dev/tty/legacy_tiocsti", "0", "0", "programs may type into their terminal"},
		{"yama", "kernel/yama/ptrace_scope", "123", "1", "programs of a user may trace each other"},
		{"io_uring", "kernel/io_uring_disabled", "12", "2", "every program may use io_uring"},
		{"userfaultfd", "vm/unprivileged_userfaultfd", "0", "0", "every program may use userfaultfd"},
	} {
		b, err := fs.ReadFile(root, "proc/sys/"+s.file)
		value := strings.TrimSpace(string(b))
		switch {
		case err != nil:
		case strings.Contains(s.good, value):
			findings = append(findings, Finding{Check: s.check, Level: LevelOK, Message: "restricted"})
		default:
			findings = append(findings, Finding{Check: s.check, Level: LevelAdvice, Message: s.message, Price: "outside of jails; inside it is closed",
				Fix: "sudo sysctl -w " + strings.ReplaceAll(s.file, "/", ".") + "=" + s.set})
		}
	}
	return append(append(findings, engineSocket(uid)...), surroundings(root)...)
}

func userFinding(uid int) Finding {
	if uid != 0 {
		return Finding{Check: "root", Level: LevelOK, Message: "not root"}
	}
	return Finding{Check: "root", Level: LevelAdvice, Message: "running as root",
		Price: "files in workspaces belong to root, and a hole in a jail leads to root",
		Fix:   "run it as a user of its own: sudo useradd --system --create-home NAME"}
}

func engineSocket(uid int) []Finding {
	for _, socket := range []string{"/run/docker.sock", "/var/run/docker.sock"} {
		if uid != 0 && unix.Access(socket, unix.W_OK) == nil {
			return []Finding{{Check: "docker.sock", Level: LevelAdvice, Message: "this user may write to " + socket + ", which is not visible in jails",
				Price: "this user has the rights of root", Fix: "take the user out of the group docker, or use rootless docker"}}
		}
	}
	return nil
}

// surroundings says in what kind of machine this is.
func surroundings(root fs.FS) []Finding {
	var findings []Finding
	if version, err := fs.ReadFile(root, "proc/version"); err == nil && strings.Contains(strings.ToLower(string(version)), "microsoft") {
		f := Finding{Check: "wsl", Level: LevelOK, Message: "WSL 2; the way to Windows is closed in jails"}
		if !strings.Contains(string(version), "WSL2") && !strings.Contains(string(version), "microsoft-standard") {
			f = Finding{Check: "wsl", Level: LevelProblem, Message: "WSL 1 has no namespaces", Price: "no jail", Fix: "wsl --set-version NAME 2"}
		}
		findings = append(findings, f)
	}
	for _, file := range []string{".dockerenv", "run/.containerenv"} {
		if _, err := fs.Stat(root, file); err == nil {
			findings = append(findings, Finding{Check: "nested", Level: LevelOK, Message: "this is a container; jails cannot have what it hides"})
			break
		}
	}
	if _, err := fs.Stat(root, "dev/kvm"); err == nil {
		findings = append(findings, Finding{Check: "kvm", Level: LevelOK, Message: "virtual machines are possible"})
	}
	return findings
}
