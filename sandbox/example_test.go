package sandbox_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/jailinit"
)

// The whole program that runs an untrusted command in the current directory.
func Example() {
	jailinit.Main() // the first program in the jail is this one
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
