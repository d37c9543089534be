package daemon

import (
	"context"
	"net"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
)

// Profiles are shown where they were asked for, on an address of loopback, and nowhere else.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		shell := call(t)
		monitor := NewMonitor(shell, Dispatcher, 0)
		admin, err := ListenAdmin("127.0.0.1:0", "")
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{"/metrics": 200, "/debug/pprof/": 404, "/debug/pprof/goroutine": 404, "/debug/pprof/trace?seconds=0.01": 404, "/debug/pprof/cmdline": 404}
		if asked {
			if err := monitor.ShowProfiles(admin); err != nil {
				t.Fatal(err)
			}
			want["/debug/pprof/"], want["/debug/pprof/goroutine"], want["/debug/pprof/trace?seconds=0.01"] = 200, 200, 200
		}
		p, err := pool.Open(t.Context(), shell, "serve", monitor.Hooks())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- monitor.Run(ctx, p, admin) }()
		waitFor(t, "it answers", func() bool { return status(admin, "/livez") == 200 })
		for path, code := range want {
			if got := status(admin, path); got != code {
				t.Errorf("asked for profiles: %v: %s answers %d, want %d", asked, path, got, code)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	open, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, admin := range []net.Listener{nil, open} {
		if err := NewMonitor(call(t), Worker, 1).ShowProfiles(admin); cli.Code(err) != cli.ExitUsage {
			t.Errorf("profiles on %v: %v", admin, err)
		}
	}
}
