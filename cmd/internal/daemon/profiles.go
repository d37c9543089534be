package daemon

import (
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// profiling is how long a profile may take to be made.
const profiling = 5 * time.Minute

// ShowProfiles shows profiles of the process on its admin address. They cost processor time,
// and say what the process does: so they are shown to programs of this host alone.
func (m *Monitor) ShowProfiles(admin net.Listener) error {
	if admin == nil {
		return cli.Usage("name an address with --admin", "profiles are shown on the admin address, and there is none")
	}
	if !loopback(admin) {
		return cli.Usage("--admin 127.0.0.1:9090", "profiles are shown on an address of loopback alone, not on %s", admin.Addr())
	}
	m.profiles = true
	return nil
}

// loopback reports whether only programs of this host reach a listener.
func loopback(l net.Listener) bool {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// withProfiles adds the profiles to what the admin address shows, if they were asked for.
func (m *Monitor) withProfiles(rest http.Handler) http.Handler {
	if !m.profiles {
		return rest
	}
	mux := http.NewServeMux()
	mux.Handle("/", rest)
	for path, show := range map[string]http.HandlerFunc{
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/profile": pprof.Profile, "GET /debug/pprof/trace": pprof.Trace,
		"GET /debug/pprof/symbol": pprof.Symbol,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(profiling + answerWithin)) // every connection of ours has one
			show(w, r)
		})
	}
	return mux
}
