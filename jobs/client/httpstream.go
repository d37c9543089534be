package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/penstock-run/penstock/jobs/operation/route"
)

// maxEventLine bounds a line of a stream. An event fits a message of the broker.
const maxEventLine = 64 << 20

// streamed is one of a stream of server-sent events.
type streamed struct {
	id, name string
	data     []byte
}

// A wanted stream.
type wanted struct {
	call   call
	route  route.Route
	fields map[string]json.RawMessage
	last   string // id of the event to go on behind; empty: from the beginning
}

// stream gives the events of a stream to take, until that has enough. It reports whether nothing more is to come, or is wanted. The error of a stream
// that was cut is one that may pass.
func (w *web) stream(ctx context.Context, want wanted, take func(streamed) (bool, error)) (over bool, err error) {
	body, err := w.open(ctx, want.call, want.route, want.fields, func(h http.Header) {
		h.Set("Accept", "text/event-stream")
		if want.last != "" {
			h.Set("Last-Event-ID", want.last)
		}
	})
	if err != nil {
		return false, err
	}
	if body == nil {
		return true, nil // there is nothing behind the last event
	}
	defer body.Close() // it was read, or is not wanted any more
	lines := bufio.NewReaderSize(body, 64<<10)
	var e streamed
	for {
		line, err := readLine(lines)
		if err != nil {
			return false, noAnswer(want.call, err)
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0: // the end of an event
			if over, err := take(e); over || err != nil {
				return over, err
			}
			e = streamed{}
		case string(field) == "id":
			e.id = string(value)
		case string(field) == "event":
			e.name = string(value)
		case string(field) == "data" && len(e.data) > 0:
			e.data = append(append(e.data, '\n'), value...)
		case string(field) == "data":
			e.data = append(e.data, value...)
		}
	}
}

// readLine reads a line, without its end.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxEventLine:
			return nil, errors.New("a line of the stream is too long")
		}
	}
}
