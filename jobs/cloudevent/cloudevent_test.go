package cloudevent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

var at = time.Date(2026, 11, 23, 17, 0, 0, 0, time.UTC)

// attributes are the headers of an event that lacks nothing, with changes.
func attributes(changes map[string]string) map[string][]string {
	header := map[string][]string{
		"ce-specversion": {"1.0"}, "ce-id": {"7"}, "ce-source": {"/ci"}, "ce-type": {"com.example.build"},
		"ce-time": {"2026-11-23T17:00:00Z"}, "content-type": {"application/json"},
	}
	for name, value := range changes {
		delete(header, strings.ToLower(name))
		if value != "" {
			header[name] = []string{value}
		}
	}
	return header
}

func TestDecode(t *testing.T) {
	const job = `{"prompt":"x"}`
	whole := Event{ID: "7", Source: "/ci", Type: "com.example.build", Time: at, ContentType: "application/json", Data: []byte(job)}
	traced := whole
	traced.Trace = jobs.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: `a="x y"`}
	object := func(more string) string {
		return `{"specversion":"1.0","id":"7","source":"/ci","type":"com.example.build","time":"2026-11-23T17:00:00Z","datacontenttype":"application/json",` + more + `}`
	}
	as := func(media string) map[string][]string { return map[string][]string{"Content-Type": {media}} }
	for name, c := range map[string]struct {
		header map[string][]string
		body   string
		want   []Event
	}{
		"no event":                        {as("application/json"), job, nil},
		"no header":                       {nil, job, nil},
		"binary":                          {attributes(nil), job, []Event{whole}},
		"binary, in HTTP's case":          {http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"7"}, "Ce-Source": {"/ci"}, "Ce-Type": {"com.example.build"}, "Ce-Time": {"2026-11-23T17:00:00Z"}, "Content-Type": {"application/json"}}, job, []Event{whole}},
		"structured":                      {as("application/cloudevents+json"), object(`"data":` + job), []Event{whole}},
		"structured, with a parameter":    {as("Application/CloudEvents+JSON; charset=utf-8"), object(`"data":` + job), []Event{whole}},
		"structured, as NATS may have it": {as("application/cloudevents"), object(`"data":` + job), []Event{whole}},
		"structured wins over headers":    {attributes(map[string]string{"ce-id": "other", "content-type": "application/cloudevents+json"}), object(`"data":` + job), []Event{whole}},
		"structured, base64":              {as("application/cloudevents+json"), object(`"data_base64":"eyJwcm9tcHQiOiJ4In0="`), []Event{whole}},
		"other attributes":                {as("application/cloudevents+json"), object(`"traceparent":"00-1","sampledrate":30,"data":` + job), []Event{whole}},
		"a trace in headers":              {attributes(map[string]string{"ce-traceparent": traced.Trace.Parent, "ce-tracestate": "a=%22x%20y%22"}), job, []Event{traced}},
		"a trace in the object":           {as("application/cloudevents+json"), object(`"traceparent":"` + traced.Trace.Parent + `","tracestate":"a=\"x y\"","data":` + job), []Event{traced}},
		"a batch":                         {as("application/cloudevents-batch+json"), "[" + object(`"data":`+job) + "," + object(`"data":`+job) + "]", []Event{whole, whole}},
		"an empty batch":                  {as("application/cloudevents-batch+json"), "[]", []Event{}},
	} {
		got, err := Decode(c.header, []byte(c.body))
		if err != nil || len(got) != len(c.want) || len(got) > 0 && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

func TestWhatIsNoCloudEvent(t *testing.T) {
	as := func(media string) map[string][]string { return map[string][]string{"content-type": {media}} }
	for name, c := range map[string]struct {
		header map[string][]string
		body   string
		want   string
	}{
		"another version":     {attributes(map[string]string{"ce-specversion": "0.3"}), "{}", "specversion"},
		"no id":               {attributes(map[string]string{"ce-id": ""}), "{}", "attribute id is missing"},
		"no source":           {attributes(map[string]string{"ce-source": ""}), "{}", "attribute source is missing"},
		"no type":             {attributes(map[string]string{"ce-type": ""}), "{}", "attribute type is missing"},
		"a wrong time":        {attributes(map[string]string{"ce-time": "noon"}), "{}", "attribute time"},
		"another format":      {as("application/cloudevents+avro"), "{}", "avro"},
		"no object":           {as("application/cloudevents+json"), "[]", "not an object"},
		"no list":             {as("application/cloudevents-batch+json"), "{}", "not a list"},
		"a bad one in a list": {as("application/cloudevents-batch+json"), `[{"specversion":"1.0"}]`, "event 1 of the batch"},
		"too many":            {as("application/cloudevents-batch+json"), "[" + strings.Repeat("{},", MaxBatch) + "{}]", "at most 1000"},
		"two kinds of data":   {as("application/cloudevents+json"), `{"specversion":"1.0","id":"1","source":"s","type":"t","data":1,"data_base64":""}`, "both"},
		"no base64":           {as("application/cloudevents+json"), `{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"?"}`, "base64"},
	} {
		got, err := Decode(c.header, []byte(c.body))
		if _, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %+v, %v, want an error with %q", name, got, err, c.want)
		}
	}
}

// A value of a header is percent-encoded by one side and decoded by the other.
func TestValuesOfHeaders(t *testing.T) {
	for text, want := range map[string]string{
		"plain/text:1": "plain/text:1", "a b": "a%20b", `say "hi"`: "say%20%22hi%22", "100%": "100%25", "Euro €": "Euro%20%E2%82%AC", "😀": "%F0%9F%98%80",
	} {
		if got := escape(text); got != want || unescape(got) != text {
			t.Errorf("%q is written %q and read %q, want %q", text, got, unescape(got), want)
		}
	}
	for text, want := range map[string]string{`"quoted \"text\""`: `quoted "text"`, "%4": "%4", "%zz": "%zz", "%e2%82%ac": "€", "%FF": "\uFFFD", `"`: `"`} {
		if got := unescape(text); got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
}

func TestJob(t *testing.T) {
	event := Event{ID: "7", Source: "/ci"}
	traced := Event{ID: "7", Source: "/ci", Trace: jobs.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	long := Event{ID: strings.Repeat("7", 300), Source: "/ci"}
	for name, c := range map[string]struct {
		event      Event
		data, want string
	}{
		"without a key":   {event, `{"prompt":"x"}`, `{"key":"/ci 7","prompt":"x"}`},
		"with a key":      {event, `{"prompt":"x","key":"mine"}`, `{"prompt":"x","key":"mine"}`},
		"in a trace":      {traced, `{"key":"k"}`, `{"key":"k","trace":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}`},
		"in its own":      {traced, `{"key":"k","trace":{}}`, `{"key":"k","trace":{}}`},
		"signed, traced":  {traced, `{"signature":{}}`, `{"signature":{}}`},
		"signed":          {event, `{"signature":{}}`, `{"signature":{}}`},
		"no object":       {event, `[1]`, `[1]`},
		"null":            {event, `null`, `null`},
		"not JSON at all": {event, `{`, `{`},
	} {
		c.event.Data = []byte(c.data)
		if got, err := c.event.Job(); err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, c.want)
		}
	}
	long.Data = []byte(`{}`)
	var keyed jobs.Job
	if got, err := long.Job(); err != nil || json.Unmarshal(got, &keyed) != nil || len(keyed.Key) != 64 {
		t.Errorf("a long name became key %q, %v", keyed.Key, err)
	}
	for name, bad := range map[string]Event{"no data": {ID: "1", Source: "s"}, "text": {ContentType: "text/plain", Data: []byte("x")}} {
		if got, err := bad.Job(); err == nil {
			t.Errorf("%s: the job is %s", name, got)
		}
	}
}

// What Header writes Decode reads, in the case of any library.
func FuzzHeader(f *testing.F) {
	f.Add("7", "/ci", "a type", "süb", "x")
	f.Fuzz(func(t *testing.T, id, source, kind, subject, data string) {
		for _, text := range []*string{&id, &source, &kind, &subject} {
			*text = strings.ToValidUTF8(*text, "")
		}
		want := Event{ID: id, Source: source, Type: kind, Subject: subject, Time: at, ContentType: "application/json", Data: []byte(data)}
		header := want.Header()
		for name, value := range maps.Clone(header) {
			header[textproto.CanonicalMIMEHeaderKey(name)] = value
			if got := fmt.Sprint(value[0]); strings.ContainsAny(got, "\r\n\x00 ") {
				t.Errorf("header %s is %q", name, got)
			}
		}
		got, err := Decode(header, []byte(data))
		if err != nil && (id == "" || source == "" || kind == "") {
			return
		}
		if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	})
}
