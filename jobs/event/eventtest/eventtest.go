// Package eventtest checks events in tests of the packages that write them.
package eventtest

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// Strict fails the test unless the event's kind is known, and its data has no
// field that the kind's payload does not have.
func Strict(tb testing.TB, e jobs.Event) {
	tb.Helper()
	row, ok := event.Lookup(e.Kind)
	if !ok {
		tb.Errorf("%v", &event.UnknownKindError{Kind: e.Kind})
		return
	}
	if row.Sender == event.Later {
		tb.Errorf("event %s is sent, and the table of kinds says that it is not yet", e.Kind)
	}
	in := json.NewDecoder(bytes.NewReader(e.Data))
	in.DisallowUnknownFields()
	if err := in.Decode(reflect.New(reflect.TypeOf(row.Payload)).Interface()); err != nil && err != io.EOF {
		tb.Errorf("data of event %s: %v\n%s", e.Kind, err, e.Data)
	}
}
