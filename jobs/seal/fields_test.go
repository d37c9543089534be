package seal_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/seal"
)

// fill gives every field below v a value that is not zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1_800_000_000, 0).UTC()))
		return
	}
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes([]byte(`{"a":1}`))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1 << 30) // a second and more, of a duration
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(100)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(2.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				t.Fatalf("%s has a field that this test cannot set: %s", v.Type(), v.Type().Field(i).Name)
			}
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("this test does not know how to fill a %s", v.Type())
	}
}

// A way is one in which a job can be changed.
type way struct {
	path   string
	change func()
}

// changes calls do for each way in which what is below v can be changed.
func changes(v reflect.Value, path string, do func(path string, change func())) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		do(path, func() { v.Set(reflect.ValueOf(v.Interface().(time.Time).Add(time.Second))) })
		return
	}
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		do(path+" left out", v.SetZero)
		do(path, func() { v.SetBytes([]byte(`{"a":2}`)) })
		return
	}
	switch v.Kind() {
	case reflect.String:
		do(path, func() { v.SetString(v.String() + "!") })
	case reflect.Bool:
		do(path, func() { v.SetBool(!v.Bool()) })
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		do(path, func() { v.SetInt(v.Int() * 2) })
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		do(path, func() { v.SetUint(v.Uint() + 1) })
	case reflect.Float32, reflect.Float64:
		do(path, func() { v.SetFloat(v.Float() * 2) })
	case reflect.Pointer:
		if v.IsNil() {
			return // the signature
		}
		do(path+" left out", v.SetZero)
		changes(v.Elem(), path, do)
	case reflect.Slice:
		do(path+" left out", v.SetZero)
		do(path+" cut off", func() { v.SetLen(1) })
		do(path+" longer", func() { v.Set(reflect.Append(v, v.Index(0))) })
		changes(v.Index(1), path+"[1]", do)
	case reflect.Map:
		key := v.MapKeys()[0]
		do(path+" left out", v.SetZero)
		do(path+" emptied", func() { v.SetMapIndex(key, reflect.Zero(v.Type().Elem())) })
		do(path+" more", func() {
			other := reflect.New(v.Type().Key()).Elem()
			changes(other, "", func(_ string, change func()) { change() })
			v.SetMapIndex(other, v.MapIndex(key))
		})
	case reflect.Struct:
		for i := range v.NumField() {
			changes(v.Field(i), path+"."+v.Type().Field(i).Name, do)
		}
	}
}

// Whichever single field of a signed job is changed, it is refused; an added
// field is among them.
func TestEveryFieldIsSigned(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	id := jobs.NewID()
	made := func() jobs.Job {
		var job jobs.Job
		fill(t, reflect.ValueOf(&job).Elem())
		job.Signature = nil
		return job
	}
	signed, err := seal.Sign(made(), id, private)
	if err != nil {
		t.Fatal(err)
	}
	rec := jobs.NewRecord(id, "default", signed, time.Now())
	verify := func(job jobs.Job) error {
		job.Signature = signed.Signature
		return seal.Verify(job, rec, []ed25519.PublicKey{public})
	}
	if err := verify(made()); err != nil {
		t.Fatalf("what was signed: %v", err)
	}
	for n, more := 0, true; more; n++ {
		job := made()
		var ways []way
		changes(reflect.ValueOf(&job).Elem(), "job", func(path string, change func()) { ways = append(ways, way{path, change}) })
		ways[n].change()
		if _, ok := errors.AsType[*seal.UnsignedError](verify(job)); !ok {
			t.Errorf("%s: changed, and nobody noticed", ways[n].path)
		}
		more = n+1 < len(ways)
	}
}
