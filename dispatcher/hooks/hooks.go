// Package hooks makes jobs of webhooks: of deliveries from GitHub, GitLab, Gitea and
// Forgejo, and of any sender that signs as Standard Webhooks say or knows a secret.
//
//	POST /hooks/NAME ─▶ genuine? ─▶ wanted? ─▶ may its sender? ─▶ job ─▶ submitted
//	                       │           │             │             │
//	                      401         202           403           422
//
// A delivery is data from strangers, also where its signature is right: anybody may open
// an issue. So a delivery chooses nothing but whether the job of its rule is submitted.
// Its text gets into the job's issue and a file beside it, and is parsed as nothing else.
// The answer comes when the job is stored. A delivery that comes again is the same job.
//
// A rule may follow what becomes of the issue and of the pull request of its job:
//
//	issue closed ─▶ cancel    comment on the issue ─▶ answer    comment on the pull request ─▶ prompt
//
// Comments count of those alone who may cause jobs by the rule.
package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"github.com/penstock-run/penstock/dispatcher/mark"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

const (
	// maxBody bounds a delivery. Those of issues and comments are far smaller.
	maxBody = 10 << 20
	// atOnce bounds the memory that deliveries take whose signatures are not known yet.
	atOnce = 16
	// within bounds a delivery: senders give up after ten seconds.
	within = 9 * time.Second
)

// Config is what a server works with.
type Config struct {
	Rules map[string]Rule // by their names, which are the last part of the address
	// Submit hands a job in.
	Submit func(context.Context, jobs.Job) (operation.Submitted, error)
	// Pool has the jobs that rules follow; it may be nil where none does.
	Pool Pool
	// File keeps a genuine delivery that was refused, for people to look at. It may be
	// nil, as may Logger.
	File   func(context.Context, Refusal) error
	Client *http.Client // asks forges who may write; default one with a timeout
	Logger *slog.Logger
}

// A Refusal is a delivery that was wanted and became no job.
type Refusal struct {
	Hook     string
	Delivery string // its id, as the sender has it
	Reason   error
	Job      jobs.Job // that it would have been
}

// A Server answers deliveries. Make one with Open.
type Server struct {
	cfg   Config
	hooks map[string]*hook
	busy  chan struct{}
}

// A hook is a rule that was checked.
type hook struct {
	Rule
	name   string
	secret []byte
	token  string
	when   *vm.Program // nil: every delivery
	// comments says which comments on a pull request ask for a change; nil: the rule does not follow.
	comments *vm.Program
	job      jobs.Job
}

// Open checks the rules and reads their secrets.
func Open(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: 5 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	s := &Server{cfg: cfg, hooks: map[string]*hook{}, busy: make(chan struct{}, atOnce)}
	for _, name := range slices.Sorted(maps.Keys(cfg.Rules)) {
		h, err := cfg.Rules[name].open(name)
		if err == nil && h.Follow && cfg.Pool == nil {
			err = errors.New("follow: this process has no jobs")
		}
		if err != nil {
			return nil, fmt.Errorf("hooks.%s: %w", name, err)
		}
		s.hooks[name] = h
	}
	return s, nil
}

// An answer is what the sender of a delivery is told. Senders show it to their users.
type answer struct {
	status  int
	about   []any  // what the log says of the job: names and values
	Job     string `json:"job,omitempty"`
	Again   bool   `json:"duplicate,omitempty"`
	Done    string `json:"done,omitempty"` // to a job that was there before
	Ignored string `json:"ignored,omitempty"`
	Error   string `json:"error,omitempty"`
}

// ServeHTTP answers POST requests to a path whose value "name" is a hook's.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, done := context.WithTimeout(r.Context(), within)
	defer done()
	a := s.answer(ctx, w, r)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if a.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "10")
	}
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(a) // the sender may have gone
}

func refuse(status int, format string, args ...any) answer {
	return answer{status: status, Error: fmt.Sprintf(format, args...)}
}

func (s *Server) answer(ctx context.Context, w http.ResponseWriter, r *http.Request) answer {
	h := s.hooks[r.PathValue("name")]
	switch {
	case h == nil:
		return refuse(http.StatusNotFound, "there is no hook of this name")
	case r.Method != http.MethodPost:
		return refuse(http.StatusMethodNotAllowed, "a delivery is a POST request")
	}
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return refuse(http.StatusServiceUnavailable, "too many deliveries at once; send it again")
	}
	// A body that comes slowly would keep others out.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)) // every connection of a server has one
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, "the delivery has more than %d bytes", large.Limit)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "the delivery ended early")
	}
	d, err := h.read(r.Header, body)
	if errors.Is(err, errForged) {
		s.cfg.Logger.Warn("a delivery was refused: it is not genuine", "hook", h.name, "from", r.RemoteAddr)
		return refuse(http.StatusUnauthorized, "%v", err)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	d.trace = jobs.TraceOf(r.Header)
	a := s.take(ctx, h, d)
	s.cfg.Logger.With(a.about...).Info("a delivery", "hook", h.name, "delivery", d.id, "event", d.event, "sender", d.sender,
		"status", a.status, "ignored", a.Ignored, "err", a.Error)
	return a
}

// take decides about a genuine delivery.
func (s *Server) take(ctx context.Context, h *hook, d delivery) answer {
	if mark.IsOwn(d.comment) {
		return answer{status: http.StatusAccepted, Ignored: "the comment is the pool's own"}
	}
	if h.Follow {
		if a, ok := s.follow(ctx, h, d); ok {
			return a
		}
	}
	if reason := h.unwanted(d); reason != "" {
		return answer{status: http.StatusAccepted, Ignored: reason}
	}
	job := h.jobOf(d)
	if err := h.permits(ctx, s.cfg.Client, d); errors.Is(err, errNotPermitted) {
		return s.file(ctx, http.StatusForbidden, h.refusal(d, job, err))
	} else if err != nil { // not known: the sender tries again
		return refuse(http.StatusServiceUnavailable, "%v", err)
	}
	made, err := s.cfg.Submit(ctx, job)
	if jobs.Code(err) == jobs.CodeInvalid || jobs.Code(err) == jobs.CodeTooLarge {
		return s.file(ctx, http.StatusUnprocessableEntity, h.refusal(d, job, err))
	}
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "%v", err)
	}
	return answer{status: http.StatusAccepted, about: about(made, job), Job: made.ID, Again: made.Duplicate}
}

// about returns what the log says of a delivery's job. One that was there before has its first
// delivery's trace, which is not known here.
func about(made operation.Submitted, job jobs.Job) []any {
	fields := []any{"job", made.ID, "session", made.Session}
	if made.Duplicate {
		return fields
	}
	span, _ := jobs.Record{ID: made.ID, Trace: job.Trace}.Submission()
	return append(fields, "trace_id", span.TraceID())
}

// refusal says why a delivery is no job.
func (h *hook) refusal(d delivery, job jobs.Job, why error) Refusal {
	return Refusal{Hook: h.name, Delivery: d.id, Job: job, Reason: fmt.Errorf("hook %s, delivery %q of %q: %w", h.name, d.id, d.sender, why)}
}

// file keeps a refused delivery, and only then tells the sender so.
func (s *Server) file(ctx context.Context, status int, r Refusal) answer {
	if s.cfg.File != nil {
		if err := s.cfg.File(ctx, r); err != nil {
			return refuse(http.StatusServiceUnavailable, "%v", err)
		}
	}
	return refuse(status, "%v", r.Reason)
}

// unwanted says why a delivery is no concern of the rule's; empty: it is.
func (h *hook) unwanted(d delivery) string {
	if h.when == nil {
		return ""
	}
	result, err := expr.Run(h.when, d.environment())
	if err != nil {
		return fmt.Sprintf("when cannot be said of it: %v", err)
	}
	if wanted, ok := result.(bool); !ok || !wanted {
		return "when is not true of it"
	}
	return ""
}
