package daemon

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
)

// tokenFile is the name of the file in the data directory with the token of [levels]. It is
// not the token of the HTTP interface: who is given this one by mistake, because another
// program listens where the service did, can change no more than what is logged.
const tokenFile = "admin-token"

// setLevel has a service log from a level on, and says so.
func setLevel(shell cli.Shell, p *pool.Pool, level slog.Level, text string) {
	p.Level.Set(level)
	word := strings.ToLower(level.String())
	servicelog.Say(shell, servicelog.Notice{Level: slog.LevelInfo, Text: text, Message: "log level changed", Attrs: []slog.Attr{slog.String("log_level", word)}})
}

// withLevel adds the level of the log to what an admin address shows, if that is one of
// loopback: the token would be readable on a network.
func withLevel(shell cli.Shell, p *pool.Pool, listener net.Listener, rest http.Handler) (http.Handler, error) {
	if !loopback(listener) {
		return rest, nil
	}
	token, err := httpapi.OpenTokenFile(filepath.Join(shell.Config.Data, tokenFile))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", rest)
	mux.Handle("/debug/level", levels{shell, p, token})
	return mux, nil
}

// levels shows the level of a service's log, and changes it, for programs that have the
// token: being on the same host is no credential, since jobs may be. Nothing that a browser
// sends is accepted, whatever it has: no page has a reason to ask.
type levels struct {
	shell cli.Shell
	pool  *pool.Pool
	token string
}

func (l levels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "":
		http.Error(w, "no page may ask for this", http.StatusForbidden)
	case !bearer || subtle.ConstantTimeCompare([]byte(given), []byte(l.token)) != 1:
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "send Authorization: Bearer with the token in the file "+tokenFile+" of the data directory", http.StatusUnauthorized)
	case r.Method == http.MethodGet:
		l.show(w)
	case r.Method == http.MethodPut:
		l.change(w, r)
	default:
		w.Header().Set("Allow", "GET, PUT")
		http.Error(w, "the methods are GET and PUT", http.StatusMethodNotAllowed)
	}
}

// A levelDocument is what levels shows and takes.
type levelDocument struct {
	Level string `json:"level"`
}

func (l levels) show(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	// If this fails the client is gone.
	_ = json.NewEncoder(w).Encode(levelDocument{strings.ToLower(l.pool.Level.Level().String())})
}

func (l levels) change(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "send Content-Type: application/json", http.StatusUnsupportedMediaType)
		return
	}
	level, err := readLevel(http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	setLevel(l.shell, l.pool, level, fmt.Sprintf("the log has level %s until SIGUSR2, a reload or another request", strings.ToLower(level.String())))
	l.show(w)
}

// readLevel reads {"level": "debug"}, or another one of the words that the setting has.
func readLevel(body io.Reader) (slog.Level, error) {
	var wanted levelDocument
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&wanted)
	if _, more := decoder.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("there is more behind it")
	}
	if err != nil {
		return 0, fmt.Errorf(`send {"level": "debug"}: %w`, err)
	}
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if wanted.Level == strings.ToLower(level.String()) {
			return level, nil
		}
	}
	return 0, fmt.Errorf("level %q is not debug, info, warn or error", wanted.Level)
}
