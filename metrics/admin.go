package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Check is one thing that must be true of a process that is ready. Test
// must return when its context ends.
type Check struct {
	Name string
	Test func(context.Context) error
}

// Admin is what the admin address shows.
type Admin struct {
	Registry *prometheus.Registry
	Info     Info
	// Live fails when the process cannot recover by itself and should be
	// started again. Losing the broker is not that.
	Live []Check
	// Ready fails while no work should be sent here: no broker, draining.
	Ready []Check
	// Timeout bounds all checks of one request; zero is 2 s.
	Timeout time.Duration
}

// Handler serves /metrics, /livez, /readyz and /version. The two checks answer
// 200 or 503; with ?verbose they list each check.
func (a Admin) Handler() http.Handler {
	if a.Timeout == 0 {
		a.Timeout = 2 * time.Second
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.InstrumentMetricHandler(a.Registry, promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true,
		// What can be collected is served: a reading that fails must not
		// take the other series away.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 8,
		Registry:            a.Registry,
	})))
	mux.Handle("GET /livez", a.checks(a.Live))
	mux.Handle("GET /readyz", a.checks(a.Ready))
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// If this fails the client is gone, and there is no other place to report it.
		_ = json.NewEncoder(w).Encode(a.Info)
	})
	return mux
}

func (a Admin) checks(list []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), a.Timeout)
		defer cancel()
		var text strings.Builder
		failed := 0
		for _, c := range list {
			if err := c.Test(ctx); err != nil {
				failed++
				// Errors may name hosts and paths. Only operators reach this
				// address, so they may see them.
				fmt.Fprintf(&text, "[-] %s: %v\n", c.Name, err)
				continue
			}
			fmt.Fprintf(&text, "[+] %s\n", c.Name)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		verdict := "ok"
		if failed > 0 {
			verdict = fmt.Sprintf("%d of %d checks failed", failed, len(list))
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if r.URL.Query().Has("verbose") || failed > 0 {
			_, _ = fmt.Fprint(w, text.String())
		}
		_, _ = fmt.Fprintln(w, verdict)
	})
}
