package mcpbridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"
)

// A writer writes messages to the client, each on a line of its own.
type writer struct {
	mu  sync.Mutex
	to  io.Writer
	err error
}

// message writes JSON as one line, and each message of a batch as one.
func (w *writer) message(data []byte) error {
	var batch []json.RawMessage
	if json.Unmarshal(data, &batch) != nil {
		batch = []json.RawMessage{data}
	}
	for _, one := range batch {
		var line bytes.Buffer
		if err := json.Compact(&line, one); err != nil {
			return errors.New("it answered with what is no message")
		}
		line.WriteByte('\n')
		w.mu.Lock()
		if w.err == nil {
			_, w.err = w.to.Write(line.Bytes())
		}
		err := w.err
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// internalError is the code of errors that are not the client's fault.
const internalError = -32603

// fail answers a request with an error.
func (w *writer) fail(id json.RawMessage, why string) {
	data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": internalError, "message": why}})
	if err == nil {
		_ = w.message(data) // failed reports it
	}
}

func (w *writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
