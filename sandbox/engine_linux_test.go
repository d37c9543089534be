package sandbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"golang.org/x/sys/unix"
)

// An engine is a service of the host that makes jails for others, as container
// engines and service managers do. It is a process of its own, this test
// binary; its client is another one, and hands it the standard streams. Jails
// are its children, and none of their starter's other descriptors get there.
//
//	this test ──▶ client ──run NAME ARG…──▶ engine ──▶ bwrap ──▶ jailinit
const (
	engineWord = "sandbox-test-engine"
	clientWord = "sandbox-test-client"
	engineEnv  = "SANDBOX_TEST_ENGINE" // the socket, for a test binary that starts a jail and is killed
)

// serveEngine is the engine, or its client, where this process is one.
func serveEngine() {
	if len(os.Args) < 3 {
		return
	}
	switch os.Args[1] {
	case engineWord:
		e := &engine{held: map[string]*os.Process{}}
		e.serve(os.Args[2])
	case clientWord:
		syscall.Exit(request(os.Args[2], os.Args[3:])) // os.Exit would sleep a second under the race detector
	}
}

type engine struct {
	mu   sync.Mutex
	held map[string]*os.Process // guarded by mu
}

func (e *engine) serve(socket string) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			os.Exit(1)
		}
		go func() {
			defer c.Close()
			answer, name := e.answer(c)
			if _, err := fmt.Fprintln(c, answer); err != nil && name != "" {
				// The client was killed, maybe before its container was: who
				// removed that may have been too early.
				e.remove(name)
			}
		}()
	}
}

// answer reads a request and returns the client's exit code and what it says,
// and the name of a container that has run.
func (e *engine) answer(c *net.UnixConn) (answer, name string) {
	b, oob := make([]byte, 1<<16), make([]byte, 1024)
	n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return "1 " + err.Error(), ""
	}
	var streams []*os.File
	messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			f := os.NewFile(uintptr(fd), "stream")
			defer f.Close()
			streams = append(streams, f)
		}
	}
	args := strings.Split(string(b[:n]), "\x00")
	switch args[0] {
	case "run":
		return e.run(args[1], args[2:], streams), args[1]
	case "rm":
		return e.remove(args[1]), ""
	case "ls":
		e.mu.Lock()
		defer e.mu.Unlock()
		names := []string{"0"}
		for name := range e.held {
			names = append(names, name)
		}
		return strings.Join(names, " "), ""
	}
	return "125 engine: what?", ""
}

// run answers when the container has ended. It keeps the container until it
// is removed, and maps codes.
func (e *engine) run(name string, args []string, streams []*os.File) string {
	// The kernel takes the end of this thread for the end of the parent.
	runtime.LockOSThread()
	cmd := &exec.Cmd{
		Path: args[0], Args: args, Env: []string{}, Dir: "/", Stdin: streams[0], Stdout: streams[1], Stderr: streams[2],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	e.mu.Lock()
	if _, taken := e.held[name]; taken {
		e.mu.Unlock()
		return "125 engine: the name is taken"
	}
	if err := cmd.Start(); err != nil {
		e.mu.Unlock()
		return "125 engine: no container: " + err.Error()
	}
	e.held[name] = cmd.Process
	e.mu.Unlock()
	_ = cmd.Wait()
	return fmt.Sprint(cmd.ProcessState.ExitCode()&0x7f+1) + " "
}

func (e *engine) remove(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.held[name]
	if p == nil {
		return "1 engine: no such container"
	}
	_ = p.Kill()
	delete(e.held, name)
	return "0 "
}

// request is the client: it says what the engine says, and ends like that.
func request(socket string, args []string) int {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, _, err := c.WriteMsgUnix([]byte(strings.Join(args, "\x00")), unix.UnixRights(0, 1, 2), nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine: gone:", err)
		return 1
	}
	code, text, _ := strings.Cut(strings.TrimSpace(answer), " ")
	if args[0] == "ls" {
		fmt.Println(text)
	} else if text != "" {
		fmt.Fprintln(os.Stderr, text+"\nsee the engine's manual")
	}
	n := 0
	_, _ = fmt.Sscan(code, &n)
	return n
}

// engined compiles for an engine.
type engined struct {
	socket string
	init   bool                   // bubblewrap's own process is pid 1 inside, and jailinit its child
	change func(*sandbox.Command) // what a test wants otherwise
}

func (*engined) Name() string { return "engine" }

func (*engined) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }

func (*engined) Check(context.Context) ([]sandbox.Feature, error) {
	return []sandbox.Feature{
		sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork, sandbox.FeatureSyscalls,
		sandbox.FeaturePrivileges, sandbox.FeatureTemporary, sandbox.FeatureKill,
	}, nil
}

func (b *engined) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	spec = spec.WithDefaults()
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, err
	}
	self, err := jailinit.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{self, clientWord, b.socket, "run", mechanism.Token, path, "--die-with-parent", "--unshare-all", "--cap-drop", "ALL", "--hostname", "job"}
	if !b.init {
		args = append(args, "--as-pid-1")
	}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"} {
		args = append(args, "--ro-bind-try", dir, dir)
	}
	workspace := []string{"--tmpfs", sandbox.WorkspacePath}
	if spec.Workspace != "" {
		workspace = []string{"--bind", spec.Workspace, sandbox.WorkspacePath}
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", self, jailinit.Path,
		"--ro-bind", mechanism.Meet, jailinit.MeetPath)
	args = append(append(args, workspace...), "--", jailinit.Path, mechanism.Mark)
	end, env := b.End()
	c := &sandbox.Command{Path: self, Args: args, Env: env, Jail: mechanism.Served{
		Init: jailinit.Config{Args: spec.Args, Env: spec.Env, Dir: spec.Dir, Listen: spec.Listen, Dial: spec.Dial}, End: end,
	}}
	if b.change != nil {
		b.change(c)
	}
	return c, nil
}

func (b *engined) End() ([][]string, []string) {
	self, _ := os.Executable()
	return [][]string{{self, clientWord, b.socket, "rm", mechanism.Token}}, nil
}

func (b *engined) Kept(ctx context.Context) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, self, clientWord, b.socket, "ls").Output()
	return strings.Fields(string(out)), err
}

// newEngine starts an engine that ends with the test, and looks for what it
// still holds then.
func newEngine(t *testing.T) *engined {
	t.Helper()
	sandboxtest.Require(t, &bwrap.Backend{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &engined{socket: filepath.Join(t.TempDir(), "engine")}
	cmd := exec.Command(self, engineWord, b.socket)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kept, err := b.Kept(context.Background())
		if err != nil || len(kept) > 0 {
			t.Errorf("the engine still holds %v, err %v", kept, err)
		}
		// Concurrent tests have theirs for a moment.
		for began := time.Now(); len(rendezvousDirs()) > 0; time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > soon {
				t.Errorf("directories are left: %v", rendezvousDirs())
				break
			}
		}
		err = errors.Join(cmd.Process.Kill(), os.Remove(b.socket))
		_ = cmd.Wait()
		if err != nil {
			t.Error(err)
		}
	})
	if got, err := bufio.NewReader(out).ReadString('\n'); got != "ready\n" {
		t.Fatalf("the engine said %q, err %v", got, err)
	}
	return b
}

// rendezvousDirs lists the directories of rendezvous of this process.
func rendezvousDirs() (found []string) {
	for _, parent := range []string{fmt.Sprintf("/run/user/%d", os.Geteuid()), "/run", "/dev/shm", os.TempDir()} {
		dirs, _ := filepath.Glob(filepath.Join(parent, fmt.Sprintf("penstock-*-%d-*-*", os.Getpid())))
		found = append(found, dirs...)
	}
	return slices.Compact(found)
}

// engines runs a test with jailinit as pid 1 and as a child of another one.
func engines(t *testing.T, f func(t *testing.T, b *engined)) {
	for name, init := range map[string]bool{"first": false, "child": true} {
		t.Run(name, func(t *testing.T) {
			b := newEngine(t)
			b.init = init
			f(t, b)
		})
	}
}

var soon = slowtest.Limit(10 * time.Second)
