package jobs

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Decode reads one job from JSON, refuses what it does not know, fills in the
// defaults and validates it. Every error is an [*InvalidError] that names the
// fields by their path.
func Decode(data []byte) (Job, error) {
	var job Job
	if err := DecodeStrict(data, &job); err != nil {
		return Job{}, err
	}
	job = job.WithDefaults()
	return job, job.Validate()
}

// DecodeStrict is json.Unmarshal, except that unknown fields and values of
// the wrong kind are refused with the field's path, all of them at once.
func DecodeStrict(data []byte, into any) error { return DecodeBounded(data, into, MaxJobBytes) }

// DecodeBounded is DecodeStrict for what may be smaller or larger than a job.
func DecodeBounded(data []byte, into any, limit int) error {
	if len(data) > limit {
		return &InvalidError{Fields: []FieldError{{"(job)", fmt.Sprintf("is %d bytes long, at most %d are allowed", len(data), limit)}}}
	}
	if !json.Valid(data) {
		var any json.RawMessage
		return &InvalidError{Fields: []FieldError{{"(job)", "is not JSON: " + json.Unmarshal(data, &any).Error()}}}
	}
	found := &InvalidError{}
	known(found, "", data, reflect.TypeOf(into).Elem())
	if err := found.orNil(); err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		found.add("(job)", err)
	}
	return found.orNil()
}

// known walks the JSON alongside the type that it will be read into.
func known(found *InvalidError, path string, data []byte, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return
	}
	switch {
	case readsItself(t) || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		leaf(found, path, data, t)
	case t.Kind() == reflect.Struct:
		knownFields(found, path, data, t)
	case t.Kind() == reflect.Slice:
		var elems []json.RawMessage
		if json.Unmarshal(data, &elems) != nil {
			found.add(orRoot(path), errors.New("wants a list"))
		}
		for i, elem := range elems {
			known(found, fmt.Sprintf("%s[%d]", path, i), elem, t.Elem())
		}
	case t.Kind() == reflect.Map:
		var entries map[string]json.RawMessage
		if json.Unmarshal(data, &entries) != nil {
			found.add(orRoot(path), errors.New("wants an object"))
		}
		for name, entry := range entries {
			known(found, join(path, name), entry, t.Elem())
		}
	default:
		leaf(found, path, data, t)
	}
}

func knownFields(found *InvalidError, path string, data []byte, t reflect.Type) {
	var entries map[string]json.RawMessage
	if json.Unmarshal(data, &entries) != nil {
		found.add(orRoot(path), errors.New("wants an object"))
		return
	}
	fields := map[string]reflect.Type{}
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = f.Type
		names = append(names, name)
	}
	for name, value := range entries {
		if ft, ok := fields[name]; ok {
			known(found, join(path, name), value, ft)
			continue
		}
		found.add(join(path, name), fmt.Errorf("is not a field; known are %s", strings.Join(names, ", ")))
	}
	slices.SortFunc(found.Fields, func(a, b FieldError) int { return strings.Compare(a.Field, b.Field) })
}

func leaf(found *InvalidError, path string, data []byte, t reflect.Type) {
	v := reflect.New(t)
	err := json.Unmarshal(data, v.Interface())
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("is %s, wants %s", article(kind.Value), plainKind(t))
	}
	_, notBase64 := errors.AsType[base64.CorruptInputError](err)
	switch {
	case notBase64:
		err = errors.New("is not base64 text")
	case err != nil && t == reflect.TypeFor[time.Time]():
		err = errors.New(`is not a time: write it as "2027-01-02T15:04:05Z"`)
	}
	found.add(orRoot(path), err)
}

// article puts the right one before a kind of JSON value.
func article(kind string) string {
	if kind == "array" || kind == "object" {
		return "an " + kind
	}
	return "a " + kind
}

func readsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func plainKind(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return "a duration such as 90s or 30m"
	case reflect.TypeFor[time.Time]():
		return "a time such as 2027-01-02T03:04:05Z"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	}
	if readsItself(t) {
		return "a string"
	}
	return "base64 text"
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func orRoot(path string) string {
	if path == "" {
		return "(job)"
	}
	return path
}
