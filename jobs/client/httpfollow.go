package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/eventstream"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/operation/route"
	"github.com/penstock-run/penstock/jobs/pause"
)

// follow reads the stream of a session. Where it is cut, it goes on behind the last event
// that has come, with whatever server answers then.
func (w *web) follow(ctx context.Context, _ *Client, rec jobs.Record, after uint64) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		f := &follower{web: w, id: rec.ID, last: after, yield: yield}
		for ctx.Err() == nil {
			over, err := f.read(ctx)
			switch {
			case over:
				return
			case err != nil && !away(err):
				yield(jobs.Event{}, err)
				return
			}
			pause.For(ctx, askAgainAfter)
		}
	}
}

func (w *web) stored(ctx context.Context, c *Client, id string, after uint64) iter.Seq2[jobs.Event, error] {
	return storedByRequests(ctx, c, id, after)
}

func (w *web) before(ctx context.Context, c *Client, id string, before uint64, most int) ([]jobs.Event, error) {
	return newest(storedByRequests(ctx, c, id, 0), before, most)
}

// A follower is on its way through a session.
type follower struct {
	web   *web
	id    string // of the job
	last  uint64 // number of the last event that has come
	yield func(jobs.Event, error) bool
}

// read reads one stream. It reports whether nothing more is to come, or is wanted. The
// error of a stream that was cut is one that may pass.
func (f *follower) read(ctx context.Context) (over bool, err error) {
	c := call{row: operation.Events.Row}
	return f.web.stream(ctx, wanted{c, route.Of(c.row), fields("id", f.id), strconv.FormatUint(f.last, 10)}, f.take)
}

// take takes an event of a stream, and reports whether it was the last one.
func (f *follower) take(e eventstream.Event) (over bool, err error) {
	if e.Name == "end" {
		return true, nil
	}
	var event jobs.Event
	if err := json.Unmarshal(e.Data, &event); err != nil {
		return false, fmt.Errorf("read an event of job %s: %w", f.id, err)
	}
	if event.Seq <= f.last {
		return false, nil // came already
	}
	f.last = event.Seq
	return !f.yield(event, nil), nil
}

func (w *web) artifact(ctx context.Context, id string, epoch uint64, name string) (io.ReadCloser, error) {
	asked := fields("id", id, "name", name)
	if epoch > 0 {
		asked["epoch"] = json.RawMessage(strconv.FormatUint(epoch, 10))
	}
	return w.open(ctx, call{row: operation.Artifacts.Row}, route.Artifact, asked, nil)
}

func (w *web) patch(ctx context.Context, _ *Client, id string) (io.ReadCloser, error) {
	return w.open(ctx, call{row: operation.Patch.Row}, route.Of(operation.Patch.Row), fields("id", id), nil)
}

// fields are those of a request, whose names and values are pairs.
func fields(pairs ...string) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]], _ = json.Marshal(pairs[i+1]) // which a string never fails
	}
	return all
}

// open asks for a stream or a file, which may be as long as it likes, and be silent for a
// while. Without content there is no body.
func (w *web) open(ctx context.Context, c call, r route.Route, asked map[string]json.RawMessage, header func(http.Header)) (body io.ReadCloser, err error) {
	err = spaced(ctx, func() error {
		body, err = w.openOnce(ctx, c, r, asked, header)
		return err
	})
	return body, err
}

func (w *web) openOnce(ctx context.Context, c call, r route.Route, asked map[string]json.RawMessage, header func(http.Header)) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	request, err := w.newRequest(ctx, r, asked, nil)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if header != nil {
		header(request.Header)
	}
	answer, err := w.http.Do(request) //nolint:bodyclose // the watchedBody does
	if err != nil {
		cancel(nil)
		return nil, w.unsent(c, err)
	}
	body := &watchedBody{ReadCloser: answer.Body, end: cancel}
	body.silence = time.AfterFunc(maxSilence, func() { cancel(errSilent) })
	err = w.refusal(answer)
	if err == nil && answer.StatusCode != http.StatusNoContent {
		return body, nil
	}
	return nil, errors.Join(err, body.Close())
}

var errSilent = fmt.Errorf("%w: it has said nothing for %v", jobs.ErrUnavailable, maxSilence)

// A watchedBody ends when nothing comes for too long.
type watchedBody struct {
	io.ReadCloser
	silence *time.Timer
	end     context.CancelCauseFunc
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.silence.Reset(maxSilence)
	return n, err
}

func (b *watchedBody) Close() error {
	b.silence.Stop()
	b.end(nil)
	return b.ReadCloser.Close()
}
