package jailinit

import (
	"reflect"
	"testing"
)

func TestRequestsSurviveTheWay(t *testing.T) {
	for _, r := range []Request{
		{1, VerbDial, []string{"tcp", "127.0.0.1:80"}}, {1<<64 - 1, VerbCancel, []string{}}, {7, "", []string{""}},
	} {
		if got, err := decodeRequest(r.Encode()); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("got %+v, err %v, want %+v", got, err, r)
		}
	}
	for _, a := range []Answer{{1, 0}, {1<<64 - 1, 4095}} {
		if got, err := DecodeAnswer(a.encode()); err != nil || got != a {
			t.Errorf("got %+v, err %v, want %+v", got, err, a)
		}
	}
	for _, s := range []string{"", "1", "1\x00", "\x000", "1\x00-1", "-1\x000", "1\x004096", "01\x000", "1\x000\x00", "1 \x000", "+1\x000"} {
		if got, err := DecodeAnswer([]byte(s)); err == nil {
			t.Errorf("%q was read as %+v", s, got)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("1\x000"))
	f.Add([]byte("18446744073709551615\x00111"))
	f.Fuzz(func(t *testing.T, b []byte) {
		// There is one way to write an answer, so that no two readers differ.
		if a, err := DecodeAnswer(b); err == nil && string(a.encode()) != string(b) {
			t.Errorf("%q was read as %+v", b, a)
		}
	})
}
