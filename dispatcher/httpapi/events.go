package httpapi

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/dispatcher/internal/sse"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/feed"
	"github.com/penstock-run/penstock/jobs/operation"
)

// events answers with a page of a session's events, or with a stream of them to a client
// that accepts one.
func (s *Server) events(c *call, route Route) error {
	if !c.accepts("text/event-stream") {
		return s.pass(c, route)
	}
	var from uint64
	if err := c.params(map[string]any{"after": &from}); err != nil {
		return err
	}
	from, resumed, err := sse.After(c.r, from) // a browser resumes at the address that it began with
	if err != nil {
		return err
	}
	id := c.r.PathValue("id")
	rec, err := s.asking(c).Get(c.r.Context(), id)
	if err != nil {
		return err
	}
	if resumed && rec.State == jobs.Finished {
		page, err := client.Ask(c.r.Context(), s.asking(c), operation.Events, operation.EventsRequest{ID: rec.ID, After: from})
		if err == nil && page.Over && len(page.Events) == 0 {
			c.WriteHeader(http.StatusNoContent) // lets a browser ask no more
			return nil
		}
	}
	ctx, done := s.untilEnding(c.r.Context())
	defer done()
	stream := sse.Stream[jobs.Event]{Event: eventText, Quiet: s.quiet, Patience: c.patience}
	return stream.Serve(ctx, c, s.asking(c).Follow(ctx, rec.ID, from))
}

// changes answers with a stream of what changes in the pool.
func (s *Server) changes(c *call, _ Route) error {
	if err := c.params(nil); err != nil {
		return err
	}
	if s.cfg.Changes == nil {
		return refused(jobs.CodeNotFound, "this server does not follow its pool")
	}
	if !c.accepts("text/event-stream") && c.r.Header.Get("Accept") != "" && !c.accepts("*/*") {
		return invalid("Accept", "is to be text/event-stream: the changes are a stream")
	}
	ctx, done := s.untilEnding(c.r.Context())
	defer done()
	stream := sse.Stream[feed.Item]{Event: changeText, Quiet: s.quiet, Patience: c.patience}
	return stream.Serve(ctx, c, s.cfg.Changes(ctx, c.r.Header.Get("Last-Event-ID")))
}

// changeText is a change in a stream.
func changeText(item feed.Item) (sse.Event, error) {
	return sse.Event{ID: item.Place, Name: string(item.Kind), Data: item.Data}, nil
}

// accepts reports whether a request wants an answer of a type, by its name.
func (c *call) accepts(kind string) bool {
	if c.r.Method != http.MethodGet {
		return false
	}
	for accepted := range strings.SplitSeq(c.r.Header.Get("Accept"), ",") {
		if name, _, err := mime.ParseMediaType(accepted); err == nil && name == kind {
			return true
		}
	}
	return false
}

// say sends a part of a long answer, which the client must take in time.
func (c *call) say(text []byte, flush bool) error {
	return sse.Write(c, text, flush, c.patience)
}

// eventText is an event in a stream.
func eventText(event jobs.Event) (sse.Event, error) {
	data, err := json.Marshal(event)
	return sse.Event{ID: strconv.FormatUint(event.Seq, 10), Name: string(event.Kind), Data: data}, err
}
