package sandbox_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
)

// The whole program that runs an untrusted command in the current directory.
func Example() {
	dir, err := os.Getwd()
	if err != nil {
		fmt.Println(err)
		return
	}
	exit, err := sandbox.Run(context.Background(), &bwrap.Backend{}, sandbox.Spec{
		Args:      []string{"sh", "-c", "make test"},
		Workspace: dir,
		Limits:    sandbox.Limits{Memory: 2 << 30, PIDs: 256},
	}, sandbox.Streams{Stdout: os.Stdout, Stderr: os.Stderr})
	fmt.Println(exit, err)
}

// A jail whose only way out is a handler of this program.
func ExampleProcess_Listeners() {
	p, err := sandbox.Start(context.Background(), &bwrap.Backend{}, sandbox.Spec{
		Args:    []string{"curl", "-s", "http://127.0.0.1:3128/"},
		Network: sandbox.NetworkGate,
		Listen:  []string{"127.0.0.1:3128"},
	}, sandbox.Streams{Stdout: os.Stdout})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close(context.Background())
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello inside") }),
		ReadHeaderTimeout: time.Second,
	}
	_ = server.Serve(p.Listeners()[0]) // returns when the jail ends
	exit, err := p.Wait()
	fmt.Println(exit, err)
}

// The three ways to run the same: capture, streams, and a process to talk to.
func ExampleStart() {
	ctx, backend := context.Background(), &bwrap.Backend{}
	spec := sandbox.Spec{Args: []string{"sh", "-c", "read name; echo hello $name"}}

	out, exit, err := sandbox.Output(ctx, backend, spec)
	fmt.Println(string(out), exit, err)

	exit, err = sandbox.Run(ctx, backend, spec, sandbox.Streams{Stdin: strings.NewReader("you\n"), Stdout: os.Stdout, Stderr: os.Stderr})
	fmt.Println(exit, err)

	p, err := sandbox.Start(ctx, backend, spec, sandbox.Streams{StdinPipe: true, Stdout: os.Stdout})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close(ctx) // kills it, should it still run
	fmt.Fprintln(p.Stdin(), "me")
	exit, err = p.Wait()
	fmt.Println(exit, err)
}

// outside is a Backend for tests of programs that use jails: it remembers what
// was to run, and runs it as it is.
type outside struct{ ran [][]string }

func (*outside) Name() string { return "outside" }

func (*outside) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }

func (*outside) Check(context.Context) ([]sandbox.Feature, error) {
	return []sandbox.Feature{ // what the test's Specs want; nothing is enforced
		sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork, sandbox.FeatureSyscalls,
		sandbox.FeaturePrivileges, sandbox.FeatureTemporary, sandbox.FeatureKill,
	}, nil
}

func (o *outside) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	o.ran = append(o.ran, spec.Args)
	path, err := exec.LookPath(spec.Args[0])
	return &sandbox.Command{Path: path, Args: spec.Args, Env: spec.Env}, err
}

// How commands run is injected by a Backend; here no jail is made.
func ExampleBackend() {
	backend := &outside{}
	out, exit, err := sandbox.Output(context.Background(), backend, sandbox.Spec{Args: []string{"echo", "hello"}})
	fmt.Printf("%s%v, error %v, ran %q\n", out, exit, err, backend.ran)
	// Output:
	// hello
	// exit code 0, error <nil>, ran [["echo" "hello"]]
}

// nice wraps another Backend, and lets what that one executes be polite.
type nice struct{ sandbox.Backend }

func (n nice) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	c, err := n.Backend.Command(spec)
	if err != nil {
		return nil, err
	}
	c.Args = append([]string{"nice", "-n", "15", c.Path}, c.Args[1:]...)
	c.Path = "/usr/bin/nice"
	return c, nil
}

// A Backend that wraps another one changes what is executed.
func ExampleBackend_wrapped() {
	backend := nice{&bwrap.Backend{}}
	out, _, err := sandbox.Output(context.Background(), backend, sandbox.Spec{Args: []string{"nice"}})
	fmt.Printf("%s, error %v\n", out, err)
}

// A Spec that cannot be used says which field, and why.
func ExampleSpec_Validate() {
	spec := sandbox.Spec{
		Args:   []string{"make"},
		Mounts: []sandbox.Mount{{Source: "/opt/node", Target: "/workspace/node_modules"}},
	}
	fmt.Println(spec.Validate())
	// Output: spec: Mounts[0].Target: "/workspace/node_modules" is inside /workspace, which the jail makes itself
}

// What a host cannot enforce is refused, unless the caller says that it may
// be absent.
func ExampleSpec_Allow() {
	spec := sandbox.Spec{Args: []string{"make"}, Limits: sandbox.Limits{CPUs: 2}}
	relaxed := spec.Allow(sandbox.FeatureCPU)
	_, _ = spec, relaxed
}
