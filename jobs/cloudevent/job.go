package cloudevent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"mime"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// maxKey is the longest key that a job may have.
const maxKey = 256

// Job returns the job in the event's data, in JSON and as its sender wrote it, but for
// its key and its trace. A job without a key gets the event's name, so that an event that
// is delivered twice is one job, and one without a trace gets the event's. A signed job
// stays as it is, since the signature covers both.
func (e Event) Job() ([]byte, error) {
	if !isJSON(e.ContentType) {
		return nil, &Error{"datacontenttype", "is " + e.ContentType + ", and a job is application/json"}
	}
	if len(bytes.TrimSpace(e.Data)) == 0 {
		return nil, &Error{Reason: "it has no data, and a job is expected there"}
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(e.Data, &fields) != nil || fields == nil || fields["signature"] != nil {
		return e.Data, nil // whoever reads the job says what is wrong with it
	}
	given := map[string]any{}
	if fields["key"] == nil {
		given["key"] = e.name()
	}
	if fields["trace"] == nil && e.Trace != (jobs.Trace{}) {
		given["trace"] = e.Trace
	}
	if len(given) == 0 {
		return e.Data, nil
	}
	for name, value := range given {
		var err error
		if fields[name], err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}

// name is what tells this event from all others.
func (e Event) name() string {
	name := e.Source + " " + e.ID
	if len(name) <= maxKey {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json"))
}

// What the types of the pool's own events begin and end with. Between them is the kind.
const (
	TypePrefix = "dev.penstock."
	TypeSuffix = ".v1"
)

// OfJob returns the event that tells of a job, for those who read a session with what
// their event system gives them. Its data is the event as the session has it.
func OfJob(e jobs.Event, tenant string, data []byte) Event {
	return Event{
		ID: e.Session + "/" + strconv.FormatUint(e.Seq, 10), Source: "/penstock/" + tenant, Type: TypePrefix + string(e.Kind) + TypeSuffix,
		Subject: e.Job, Time: e.Time, ContentType: "application/json", Data: data,
	}
}
