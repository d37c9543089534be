package doctorcmd

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The end of a credential is read from its JWT; credentials without one have no end.
func TestCredentialEnds(t *testing.T) {
	t.Parallel()
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	file := filepath.Join(t.TempDir(), "creds")
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	const form = "-----BEGIN NATS USER JWT-----\n%s\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\nSUA\n------END USER NKEY SEED------\n"
	for _, c := range []struct {
		name, token string
		ends        bool
	}{
		{"with an end", part(`{}`) + "." + part(fmt.Sprintf(`{"exp":%d}`, at.Unix())) + ".x", true},
		{"without an end", part(`{}`) + "." + part(`{"sub":"U"}`) + ".x", false},
		{"two parts", "a.b", false},
		{"no base64", "a.!.c", false},
		{"nothing", "", false},
	} {
		if err := os.WriteFile(file, fmt.Appendf(nil, form, c.token), 0o600); err != nil {
			t.Fatal(err)
		}
		e, ok := credentialEnds(file)
		if ok != c.ends || ok && !e.at.Equal(at) {
			t.Errorf("%s: %v, %v", c.name, e, ok)
		}
	}
	if err := os.WriteFile(file, []byte("SUASEED\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := credentialEnds(file); ok {
		t.Error("a seed alone has an end")
	}
}

// What has expired fails, what will soon is weak, and the nearest end comes first.
func TestJudge(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) ending { return ending{fmt.Sprint("in ", d), time.Now().Add(d)} }
	for _, c := range []struct {
		all    []ending
		status string
		first  string
	}{
		{nil, "ok", "none"},
		{[]ending{in(soon + time.Hour)}, "ok", "none"},
		{[]ending{in(soon - time.Hour), in(time.Hour)}, "weak", "in 1h"},
		{[]ending{in(time.Hour), in(-time.Hour)}, "fail", "in -1h"},
	} {
		if f := judge("x", c.all, "fix"); f.Status != c.status || !strings.HasPrefix(f.Detail, c.first) || (f.Fix == "") != (f.Status == "ok") {
			t.Errorf("%v: %+v", c.all, f)
		}
	}
}
