package mcpbridge

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// The time before a broken stream is asked for again, unless the server says another one.
const (
	firstPause = time.Second
	mostPause  = time.Minute
)

// events are the server-sent events of a stream, over the requests that it takes.
type events struct {
	last  string        // id of the last event; "": the server gives none
	retry time.Duration // as the server wants it; 0: it has not said
}

// wait is the time before the next try.
func (e *events) wait(tries int) time.Duration {
	if e.retry > 0 {
		return min(e.retry, mostPause)
	}
	return min(firstPause<<min(tries, 10), mostPause)
}

// read writes the messages of a stream until it ends, or one is enough.
func (e *events) read(from io.Reader, to *writer, enough func(message []byte) bool) (done bool, err error) {
	lines := bufio.NewReaderSize(from, 64<<10)
	var data []byte
	id := e.last // of the event that is being read; it counts when that is complete
	for {
		line, err := readLine(lines, maxAnswer-len(data))
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return false, err
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0: // the end of an event
			if e.last = id; len(data) == 0 {
				continue
			}
			if err := to.message(data); err != nil {
				return false, err
			}
			if enough(data) {
				return true, nil
			}
			data = nil
		case string(field) == "data" && len(data) > 0:
			data = append(append(data, '\n'), value...)
		case string(field) == "data":
			data = bytes.Clone(value)
		case string(field) == "id":
			id = string(value)
		case string(field) == "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

var errLong = errors.New("it sent a message of more than 32 MiB")

// readLine reads a line, without its end. A line that its end is missing from is none.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, errLong
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
