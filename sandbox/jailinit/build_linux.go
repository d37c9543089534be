package jailinit

import (
	"errors"
	"os"
	"os/signal"
	"path"
	"strconv"
	"syscall"

	"github.com/penstock-run/penstock/sandbox/internal/rootfs"
)

// newRoot is where the view is made, in the view that the mechanism gave.
const newRoot = "/new"

// build makes the view as pid 1 of the new namespaces, starts the agent in it
// and ends with it. What runs then ends too.
func build(c Config) error {
	if err := c.makeView(); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte("job")); err != nil {
		return &stepError{"set up", "host name", err}
	}
	c.View, c.nested = nil, false
	executed, mine, err := pipe()
	if err != nil {
		return &stepError{"set up", "pipe", err}
	}
	agent, err := anew(c, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: rootfs.AgentID, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: rootfs.AgentID, HostID: 0, Size: 1}},
	}, uintptr(mine))
	if err != nil {
		return &stepError{"set up", "user", err}
	}
	syscall.Close(mine)
	// If files hold all memory, the kernel would kill any process of the jail, and
	// without this process the reason would be unknown.
	_ = os.WriteFile("/proc/"+strconv.Itoa(agent)+"/oom_score_adj", []byte("500"), 0)
	polite := make(chan os.Signal, 1)
	signal.Notify(polite, syscall.SIGTERM)
	// The other end closes when the agent is executed. If it cannot be, the runner
	// has got the error.
	if _, err := syscall.Read(executed, make([]byte, 1)); err != nil {
		return &stepError{"set up", "pipe", err}
	}
	_ = tell("running", os.Getpid()) // a runner that is gone is outer's business
	syscall.Close(controlFD)
	if _, err := syscall.Write(reportFD, []byte{0}); err != nil {
		os.Exit(127)
	}
	ended, _ := reap(agent)
	for {
		select {
		case <-polite:
			_ = syscall.Kill(-agent, syscall.SIGTERM)
		case e := <-ended:
			_, _ = syscall.Write(reportFD, []byte{byte(e.code), byte(e.signal)})
			os.Exit(e.code)
		}
	}
}

func pipe() (r, w int, err error) {
	var p [2]int
	err = syscall.Pipe2(p[:], syscall.O_CLOEXEC)
	return p[0], p[1], err
}

func (c Config) makeView() error {
	// Nothing that is mounted here may show outside, and nothing new there in here.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return &stepError{"set up", "mounts", err}
	}
	if err := memory(newRoot, 0o755, 16<<20); err != nil {
		return &stepError{"set up", newRoot, underlying(err)}
	}
	for n, p := range c.View {
		if err := p.make(n); err != nil {
			return &stepError{"set up", p.Target, underlying(err)}
		}
	}
	if err := enter(); err != nil {
		return &stepError{"set up", "root", err}
	}
	// It is memory: writable, it would be without limit.
	if err := remount("/", syscall.MS_RDONLY|syscall.MS_NOSUID|syscall.MS_NODEV); err != nil {
		return &stepError{"set up", "root", err}
	}
	return nil
}

// enter makes newRoot the root and lets go of the one before.
func enter() error {
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	// The old root ends up above the new one, from where it is taken away:
	// pivot_root(2), "pivot_root(".", ".")".
	if err := syscall.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := syscall.Unmount(".", syscall.MNT_DETACH); err != nil {
		return err
	}
	return os.Chdir("/")
}

func (p Mount) make(n int) error {
	target := newRoot + p.Target
	if p.Kind != KindMask && p.Kind != KindFreeze {
		if err := os.MkdirAll(path.Dir(target), 0o755); err != nil {
			return err
		}
	}
	switch p.Kind {
	case KindBind:
		return show(p.Source, target, p.Writable)
	case KindFile:
		// Bound from outside the view, so that no process inside can change or
		// replace it, although its directory may be the agent's.
		source := "/files-" + strconv.Itoa(n)
		if err := os.WriteFile(source, p.Data, os.FileMode(p.Mode)); err != nil {
			return err
		}
		if err := os.Chmod(source, os.FileMode(p.Mode)); err != nil { // whatever the umask
			return err
		}
		return show(source, target, false)
	case KindLink:
		return os.Symlink(p.Source, target)
	case KindMemory:
		return memory(target, p.Mode, p.Size)
	case KindProc:
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		return syscall.Mount("proc", target, "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, "")
	case KindDevices:
		return devicesAt(target, p.Size)
	case KindMask:
		if err := syscall.Mount("/dev/null", target, "", syscall.MS_BIND, ""); err != nil {
			return unless(syscall.ENOENT, err)
		}
		return restrictBelow(target, false)
	case KindFreeze:
		if err := syscall.Mount(target, target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			return unless(syscall.ENOENT, err)
		}
		return restrictBelow(target, false)
	}
	return errors.New("unknown kind of place " + string(p.Kind))
}

func unless(harmless, err error) error {
	if err == harmless {
		return nil
	}
	return err
}

func memory(target string, mode uint32, size int64) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return syscall.Mount("tmpfs", target, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode="+strconv.FormatUint(uint64(mode), 8)+",size="+strconv.FormatInt(size, 10))
}

// show binds source, and what is mounted below it, to target.
func show(source, target string, writable bool) error {
	st, err := os.Stat(source)
	if err != nil {
		return err
	}
	if st.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else {
		err = touch(target)
	}
	if err != nil {
		return err
	}
	if err := syscall.Mount(source, target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return err
	}
	return restrictBelow(target, writable)
}

func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// devicesAt makes a directory of devices with a shared memory of the size.
func devicesAt(target string, shm int64) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	// The mount must not refuse devices: what is bound below inherits that.
	if err := syscall.Mount("tmpfs", target, "tmpfs", syscall.MS_NOSUID|syscall.MS_NOEXEC, "mode=755,size=65536"); err != nil {
		return err
	}
	for _, name := range rootfs.Devices {
		if err := touch(target + "/" + name); err != nil {
			return err
		}
		if err := syscall.Mount("/dev/"+name, target+"/"+name, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	if err := os.Mkdir(target+"/pts", 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("devpts", target+"/pts", "devpts", syscall.MS_NOSUID|syscall.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return err
	}
	for _, l := range rootfs.DeviceLinks {
		if err := os.Symlink(l[1], target+"/"+l[0]); err != nil {
			return err
		}
	}
	if err := memory(target+"/shm", 0o1777, shm); err != nil {
		return err
	}
	return remount(target, syscall.MS_RDONLY|syscall.MS_NOSUID|syscall.MS_NOEXEC)
}

// restrictBelow takes set-uid programs and devices away from the mount at
// target and all below it, and writing unless it is meant.
func restrictBelow(target string, writable bool) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, line := range lines(table) {
		f := fields(line)
		if len(f) < 6 {
			continue
		}
		path := unescape(f[4])
		if path != target && !hasPrefix(path, target+"/") {
			continue
		}
		flags := mountFlags(f[5]) | syscall.MS_NOSUID | syscall.MS_NODEV
		if !writable {
			flags |= syscall.MS_RDONLY
		}
		if err := remount(path, flags); err != nil {
			return err
		}
	}
	return nil
}

func remount(path string, flags uintptr) error {
	return syscall.Mount("", path, "", syscall.MS_BIND|syscall.MS_REMOUNT|flags, "")
}

// mountFlags keeps what a mount has: a user namespace refuses to lose any.
func mountFlags(options string) (flags uintptr) {
	for _, o := range split(options, ",") {
		flags |= map[string]uintptr{
			"ro": syscall.MS_RDONLY, "nosuid": syscall.MS_NOSUID, "nodev": syscall.MS_NODEV, "noexec": syscall.MS_NOEXEC,
			"noatime": syscall.MS_NOATIME, "nodiratime": syscall.MS_NODIRATIME, "relatime": syscall.MS_RELATIME,
		}[o]
	}
	return flags
}

// unescape reads a path of mountinfo, where blanks and backslashes are octal.
func unescape(s string) string {
	for _, e := range []struct{ from, to string }{{`\040`, " "}, {`\011`, "\t"}, {`\012`, "\n"}, {`\134`, `\`}} {
		s = join(split(s, e.from), e.to)
	}
	return s
}
