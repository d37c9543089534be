package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// An Entry is a record as it is stored.
type Entry struct {
	jobs.Record
	Rev uint64    // its revision: the number of the message that it was read from
	At  time.Time // when it was written, by the broker's clock
	// Lost is the attempt that the next write takes from a silent worker, if it does.
	Lost *Entry
	// raw is a record into which a newer release has written more, as it was read: that is
	// written back as it was.
	raw []byte
}

// ErrForeign says that a record is of a newer release, and unreadable here.
var ErrForeign = errors.New("it was written by a newer release: update this one")

// decode reads an entry from the message that has it.
func decode(m wire.Message) (Entry, error) {
	e := Entry{Rev: m.Seq, At: m.Time}
	known := json.NewDecoder(bytes.NewReader(m.Data))
	known.DisallowUnknownFields()
	if err := known.Decode(&e.Record); err != nil || known.More() {
		e.Record, e.raw = jobs.Record{}, m.Data
		if err := json.Unmarshal(m.Data, &e.Record); err != nil {
			if e.Schema > jobs.RecordSchema {
				err = fmt.Errorf("%w: %w", ErrForeign, err)
			}
			return Entry{}, fmt.Errorf("record %s: %w", m.Subject, err)
		}
	}
	e.Repo = jobs.WithoutCredentials(e.Repo)
	if e.State == jobs.Executing && e.Epoch == 0 {
		// The claim could not know the revision that it was going to get.
		e.Epoch = m.Seq
	}
	return e, nil
}

// decodeFound decodes a message that a scan found. A record that cannot be read is left to the
// claim to report: it must not hide all others.
func decodeFound(m wire.Message) (Entry, bool) {
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	e, err := decode(m)
	if m.Gone() || err != nil || e.ID != id {
		return Entry{Record: jobs.Record{ID: id}, Rev: m.Seq}, false
	}
	return e, true
}

// recordFields are the names that this release knows.
var recordFields = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for field := range reflect.TypeFor[jobs.Record]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
})

// Encode writes a record with all that was in it.
func (e Entry) Encode() ([]byte, error) {
	data, err := json.Marshal(e.Record)
	if err != nil || e.raw == nil {
		return data, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(e.raw, &all); err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool { return recordFields()[name] })
	if len(all) == 0 {
		return data, nil
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
