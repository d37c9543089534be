// Package cloudevent reads and writes CloudEvents 1.0, the envelope in which event systems
// hand messages on.
//
//	headers + body ──Decode──▶ Event ──Job──▶ the job in its data
//	                           Event ──Header──▶ headers of a message whose body is the data
//	                           Event ──MarshalJSON──▶ one JSON object
//
// An event comes in binary mode, its attributes in headers "ce-…" and its data as the
// body; in structured mode, as one JSON object; or, by HTTP alone, as a batch of such
// objects. Headers are those of NATS and of HTTP, whose bindings agree. The forms are of
// the specification's version 1.0.2: https://github.com/cloudevents/spec. The package
// holds values only.
package cloudevent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// MaxBatch is how many events a batch may have.
const MaxBatch = 1000

// The media types of events whose attributes are not in headers.
const (
	structured = "application/cloudevents"
	batched    = "application/cloudevents-batch"
)

const version = "1.0"

// An Event is one CloudEvent. Source and ID together name it: two with the same are the
// same event.
type Event struct {
	ID      string
	Source  string
	Type    string
	Subject string
	Time    time.Time // zero: not given
	// Trace is the context in which the event came about, as the extension for
	// distributed tracing has it.
	Trace       jobs.Trace
	ContentType string // of Data; empty: JSON
	Data        []byte
}

// An Error says why a message is no CloudEvent.
type Error struct {
	Attribute string // which attribute is wrong; empty: the envelope itself
	Reason    string
}

func (e *Error) Error() string {
	if e.Attribute == "" {
		return "cloudevent: " + e.Reason
	}
	return "cloudevent: attribute " + e.Attribute + " " + e.Reason
}

// Decode reads the events of a message: none if it is no CloudEvent, one, or those of a
// batch. Every error is an [*Error].
func Decode(header map[string][]string, body []byte) ([]Event, error) {
	attributes := map[string]string{}
	contentType := ""
	for name, values := range header { // written in any case
		name = strings.ToLower(name)
		if attribute, ok := strings.CutPrefix(name, "ce-"); ok && len(values) > 0 {
			attributes[attribute] = unescape(values[0])
		}
		if name == "content-type" && len(values) > 0 {
			contentType = values[0]
		}
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media = strings.ToLower(contentType)
	}
	media, format, _ := strings.Cut(media, "+")
	switch {
	case media == batched && (format == "json" || format == ""):
		return decodeBatch(body)
	case media == structured && (format == "json" || format == ""):
		event, err := decodeObject(body)
		return []Event{event}, err
	case media == batched, media == structured:
		return nil, &Error{Reason: fmt.Sprintf("is in format %q, only json is read", format)}
	case len(attributes) == 0 || attributes["specversion"] == "":
		return nil, nil
	}
	event, err := fromAttributes(attributes)
	event.ContentType, event.Data = contentType, body
	return []Event{event}, err
}

func decodeBatch(body []byte) ([]Event, error) {
	var objects []json.RawMessage
	if err := json.Unmarshal(body, &objects); err != nil {
		return nil, &Error{Reason: "the batch is not a list in JSON"}
	}
	if len(objects) > MaxBatch {
		return nil, &Error{Reason: fmt.Sprintf("the batch has %d events, at most %d are allowed", len(objects), MaxBatch)}
	}
	events := make([]Event, 0, len(objects))
	for i, object := range objects {
		event, err := decodeObject(object)
		if wrong, ok := errors.AsType[*Error](err); ok {
			return nil, &Error{wrong.Attribute, fmt.Sprintf("%s (event %d of the batch)", wrong.Reason, i+1)}
		}
		events = append(events, event)
	}
	return events, nil
}

// decodeObject reads an event in structured mode. Attributes of other systems are
// ignored, also those that are not texts.
func decodeObject(body []byte) (Event, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return Event{}, &Error{Reason: "it is not an object in JSON"}
	}
	attributes := map[string]string{}
	for name, value := range object {
		var text string
		if json.Unmarshal(value, &text) == nil {
			attributes[name] = text
		}
	}
	event, err := fromAttributes(attributes)
	if err != nil {
		return event, err
	}
	event.ContentType = attributes["datacontenttype"]
	encoded, isBinary := object["data_base64"]
	data, isText := object["data"]
	switch {
	case isBinary && isText:
		return event, &Error{Reason: "it has both data and data_base64"}
	case isBinary:
		if json.Unmarshal(encoded, &event.Data) != nil {
			return event, &Error{"data_base64", "is not base64"}
		}
	case isText:
		event.Data = data
	}
	return event, nil
}

func fromAttributes(attributes map[string]string) (Event, error) {
	event := Event{ID: attributes["id"], Source: attributes["source"], Type: attributes["type"], Subject: attributes["subject"]}
	if got := attributes["specversion"]; got != version {
		return event, &Error{"specversion", fmt.Sprintf("is %q, and this program reads %s", got, version)}
	}
	for _, needed := range []string{"id", "source", "type"} {
		if attributes[needed] == "" {
			return event, &Error{needed, "is missing"}
		}
	}
	if at := attributes["time"]; at != "" {
		var err error
		if event.Time, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return event, &Error{"time", fmt.Sprintf("%q is not a time as 2027-01-02T15:04:05Z", at)}
		}
	}
	event.Trace = jobs.ReadTrace(attributes[jobs.TraceParent], attributes[jobs.TraceState])
	return event, nil
}

// Header returns the attributes as headers, for a message in binary mode whose body is
// Data.
func (e Event) Header() map[string][]string {
	header := map[string][]string{}
	set := func(name, value string) {
		if value != "" {
			header[name] = []string{value}
		}
	}
	set("ce-specversion", version)
	set("ce-id", escape(e.ID))
	set("ce-source", escape(e.Source))
	set("ce-type", escape(e.Type))
	set("ce-subject", escape(e.Subject))
	if !e.Time.IsZero() {
		set("ce-time", e.Time.UTC().Format(time.RFC3339Nano))
	}
	e.Trace.Put(func(name, value string) { set("ce-"+name, escape(value)) })
	set("content-type", e.ContentType)
	return header
}

// MarshalJSON returns the event in structured mode.
func (e Event) MarshalJSON() ([]byte, error) {
	object := struct {
		Version     string          `json:"specversion"`
		ID          string          `json:"id"`
		Source      string          `json:"source"`
		Type        string          `json:"type"`
		Subject     string          `json:"subject,omitempty"`
		Time        string          `json:"time,omitempty"`
		TraceParent string          `json:"traceparent,omitempty"`
		TraceState  string          `json:"tracestate,omitempty"`
		ContentType string          `json:"datacontenttype,omitempty"`
		Data        json.RawMessage `json:"data,omitempty"`
		Binary      []byte          `json:"data_base64,omitempty"`
	}{Version: version, ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Subject, TraceParent: e.Trace.Parent, TraceState: e.Trace.State, ContentType: e.ContentType}
	if !e.Time.IsZero() {
		object.Time = e.Time.UTC().Format(time.RFC3339Nano)
	}
	if isJSON(e.ContentType) {
		object.Data = e.Data
	} else {
		object.Binary = e.Data
	}
	return json.Marshal(object)
}

// StructuredType is the media type of an event in structured mode.
const StructuredType = structured + "+json"

// escape writes an attribute as a header's value: what is not printable ASCII, a space, a
// quotation mark and the percent sign by their bytes.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescape reads a header's value, which may be a quoted string, too. What is not a
// percent sign with two digits stands for itself.
func unescape(text string) string {
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		text = unquote(text[1 : len(text)-1])
	}
	var b bytes.Buffer
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			high, low := digit(text[i+1]), digit(text[i+2])
			if high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

func unquote(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

func digit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
