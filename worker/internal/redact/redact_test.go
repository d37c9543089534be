package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

const secret = `tok/en+"<é>&\123456`

func redactor(tb testing.TB, secrets map[string]string) *Redactor {
	tb.Helper()
	r, skipped := New(secrets)
	if len(skipped) > 0 {
		tb.Fatalf("skipped: %+v", skipped)
	}
	return r
}

func TestForms(t *testing.T) {
	r := redactor(t, map[string]string{"TOKEN": secret})
	quoted, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]string{
		"plain":             secret,
		"hex":               hex.EncodeToString([]byte(secret)),
		"HEX":               strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"query":             url.QueryEscape(secret),
		"path":              url.PathEscape(secret),
		"query, lower case": strings.NewReplacer("%2F", "%2f", "%2B", "%2b", "%3C", "%3c", "%C3", "%c3", "%A9", "%a9", "%3E", "%3e", "%5C", "%5c").Replace(url.QueryEscape(secret)),
		"JSON":              string(quoted[1 : len(quoted)-1]),
		"JSON with slashes": strings.ReplaceAll(string(quoted[1:len(quoted)-1]), "/", `\/`),
		"JSON without HTML": `tok/en+\"<é>&\\123456`,
	}
	for name, form := range forms {
		if got := string(r.Text([]byte("a " + form + " b"))); got != "a [redacted TOKEN] b" {
			t.Errorf("%s: %q became %q", name, form, got)
		}
	}
	// In base64, a few digits at the ends belong to the neighbours too.
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		for before := range 7 {
			text := enc.EncodeToString([]byte("user:.."[:before] + secret + " and more"))
			got := string(r.Text([]byte(text)))
			left := strings.Replace(got, "[redacted TOKEN]", "", 1)
			if left == got || len(text)-len(left) < len(secret)*8/6-1 {
				t.Errorf("after %d bytes: %q became %q", before, text, got)
			}
		}
	}
}

func TestLines(t *testing.T) {
	pem := "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\nshort\n-----END KEY-----\n"
	r := redactor(t, map[string]string{"KEY": pem})
	for in, want := range map[string]string{
		"1 MIIEvQIBADANBgkqhkiG9w0BAQEFAASC": "1 [redacted KEY]",
		"BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\r": "[redacted KEY]\r",
		"-----BEGIN KEY-----":                "-----BEGIN KEY-----",
		"short":                              "short",
		"x" + pem:                            "x[redacted KEY]",
		strings.TrimSpace(pem):               "[redacted KEY]",
	} {
		if got := string(r.Text([]byte(in))); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestSkipped(t *testing.T) {
	r, skipped := New(map[string]string{"PIN": "1234567", "EMPTY": "", "BLANK": "           a\n", "OK": "12345678"})
	var names []string
	for _, s := range skipped {
		names = append(names, s.Name)
		if s.Reason == "" {
			t.Errorf("%s: no reason", s.Name)
		}
	}
	if !slices.Equal(names, []string{"BLANK", "EMPTY", "PIN"}) {
		t.Errorf("skipped %q", names)
	}
	if got := string(r.Text([]byte("1234567 12345678"))); got != "1234567 [redacted OK]" {
		t.Errorf("got %q", got)
	}
}

// The longest of several that begin alike goes, or the rest of it would stay.
func TestOverlap(t *testing.T) {
	r := redactor(t, map[string]string{"A": "password", "B": "password-and-more", "C": "odd name", "D d\"": "ordinary"})
	for in, want := range map[string]string{
		"password-and-more":   "[redacted B]",
		"password-and-mor":    "[redacted A]-and-mor",
		"passwordpassword":    "[redacted A][redacted A]",
		"ordinary":            "[redacted D_d_]",
		"passwor":             "passwor",
		"":                    "",
		"xpasswordxpassword ": "x[redacted A]x[redacted A] ",
	} {
		if got := string(r.Text([]byte(in))); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	r := redactor(t, map[string]string{"TOKEN": secret, "PIN": "1234567890", "WORD": "hunter2hunter2"})
	for in, want := range map[string]string{
		`{"a":"x hunter2hunter2 y","hunter2hunter2":[1,true,null]}`: `{"a":"x [redacted WORD] y","[redacted WORD]":[1,true,null]}`,
		`"\u0068unter2\u0068unter2"`:                                `"[redacted WORD]"`,
		`"a\"hunter2hunter2\\"`:                                     `"a\"[redacted WORD]\\"`,
		`"{\"a\":\"tok\/en+\\\"<é>&\\\\123456\"}"`:                  `"{\"a\":\"[redacted TOKEN]\"}"`,
		`{"n": -1234567890.5e1, "m": 123456789}`:                    `{"n": "-[redacted PIN].5e1", "m": 123456789}`,
		`{"a":"\u003c","b":"hunter2"}`:                              `{"a":"\u003c","b":"hunter2"}`,
		``:                                                          ``,
	} {
		got := r.JSON([]byte(in))
		if string(got) != want || in != "" && !json.Valid(got) {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
	same := []byte(`{"a":"nothing here"}`)
	if got := r.JSON(same); &got[0] != &same[0] {
		t.Error("what has no secret was copied")
	}
}

func TestEvent(t *testing.T) {
	r := redactor(t, map[string]string{"WORD": "hunter2hunter2"})
	e := event.New(event.OutputLine{Stream: "stdout", Text: "say hunter2hunter2"})
	e.Raw = &jobs.Raw{Stream: "stdout", N: 1, Text: "say hunter2hunter2"}
	before, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(r.Event(e))
	if err != nil || bytes.Contains(out, []byte("hunter2")) || bytes.Count(out, []byte("[redacted WORD]")) != 2 {
		t.Errorf("got %s, err %v", out, err)
	}
	if after, _ := json.Marshal(e); !bytes.Equal(before, after) {
		t.Errorf("the event itself was changed: %s", after)
	}
	e.Raw = &jobs.Raw{JSON: json.RawMessage(`{"a":"hunter2hunter2"}`)}
	if got := r.Event(e).Raw.JSON; string(got) != `{"a":"[redacted WORD]"}` {
		t.Errorf("got %s", got)
	}
	e.Raw, e.Data = nil, nil
	if got := r.Event(e); got.Data != nil || got.Raw != nil {
		t.Errorf("got %+v", got)
	}
}

func TestWriter(t *testing.T) {
	r := redactor(t, map[string]string{"A": "password", "B": "password-and-more"})
	in := "x password-and-more, password-and-mor; passwor password"
	for size := 1; size <= len(in); size++ {
		var out bytes.Buffer
		w := r.Writer(&out)
		for p := range slices.Chunk([]byte(in), size) {
			if n, err := w.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if want := "x [redacted B], [redacted A]-and-mor; passwor [redacted A]"; out.String() != want {
			t.Errorf("pieces of %d: %q", size, out.String())
		}
	}
}

// Secrets that come later are found by what is in use already, also in the middle of a stream; those of before still are, also one of
// the same name.
func TestCommon(t *testing.T) {
	var c Common
	c.Learn("KEY", "first-of-the-keys")
	r, skipped := c.Redactor(map[string]string{"OWN": "own-of-the-job"})
	other, _ := c.Redactor(nil)
	c.Learn("SHORT", "short")
	if _, also := c.Redactor(nil); len(skipped) != 0 || len(also) != 1 || also[0].Name != "SHORT" {
		t.Errorf("skipped %v, then %v", skipped, also)
	}
	var out bytes.Buffer
	w := r.Writer(&out)
	const in = "first-of-the-keys second-of-the-keys own-of-the-job\n"
	if _, err := w.Write([]byte(in)); err != nil {
		t.Fatal(err)
	}
	c.Learn("KEY", "second-of-the-keys")
	c.Learn("KEY", "second-of-the-keys")
	if _, err := w.Write([]byte(in)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	const want = "[redacted KEY] [redacted KEY] [redacted OWN]\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("the stream is %q", out.String())
	}
	if got := string(r.Text([]byte(in))); got != want {
		t.Errorf("got %q", got)
	}
	if got := string(other.JSON([]byte(`{"a":"second\u002dof-the-keys own-of-the-job"}`))); got != `{"a":"[redacted KEY] own-of-the-job"}` {
		t.Errorf("got %s", got)
	}
}

// A secret that is known is passed on by no goroutine, while others become known.
func TestSecretsAreLearntUnderLoad(t *testing.T) {
	var c Common
	r, _ := c.Redactor(nil)
	var known atomic.Int64
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				in := fmt.Sprintf("key-number-%04d", known.Load())
				if got := string(r.Text([]byte(in))); got != "[redacted KEY]" && in != "key-number-0000" {
					t.Errorf("%s became %s", in, got)
				}
			}
		})
	}
	for n := range int64(50) {
		c.Learn("KEY", fmt.Sprintf("key-number-%04d", n+1))
		known.Store(n + 1)
	}
	close(stop)
	readers.Wait()
}

// A worker without secrets passes all on.
func TestWriterWithoutSecrets(t *testing.T) {
	var out bytes.Buffer
	w := redactor(t, nil).Writer(&out)
	if n, err := w.Write([]byte("plain")); n != 5 || err != nil || w.Close() != nil || out.String() != "plain" {
		t.Errorf("wrote %d, %v: %q", n, err, out.String())
	}
}

func FuzzJSON(f *testing.F) {
	f.Add("hunter2hunter2", []byte(`{"a":"hunter2hunter2\u0041","b":[12345678,"\\"]}`))
	f.Add("12345678", []byte(`[12345678,-123456780e5,"\ud800"]`))
	f.Add(`a"b\c/dé`, []byte(`"a\"b\\c\/d\u00e9"`))
	f.Fuzz(func(t *testing.T, secret string, in []byte) {
		r, skipped := New(map[string]string{"S": secret})
		if len(skipped) > 0 || !json.Valid(in) || !utf8.ValidString(secret) {
			return
		}
		out := r.JSON(in)
		if !json.Valid(out) {
			t.Fatalf("%q with %q became %q", in, secret, out)
		}
		// A reader does not see the secret in any string.
		dec := json.NewDecoder(bytes.NewReader(out))
		for {
			tok, err := dec.Token()
			if err != nil {
				return
			}
			s, ok := tok.(string)
			if ok && strings.Contains(strings.ReplaceAll(s, "[redacted S]", "\x00"), secret) && !strings.Contains("[redacted S]", secret) {
				t.Fatalf("%q in %q is left in %q", secret, in, out)
			}
		}
	})
}

func BenchmarkEvent(b *testing.B) {
	secrets := map[string]string{}
	for _, name := range strings.Fields("A B C D E F G H I J") {
		secrets[name] = strings.Repeat("s3cr3t-"+name, 5)
	}
	r, _ := New(secrets)
	e := event.New(event.OutputLine{Text: strings.Repeat("The quick brown fox, 17 of them;\n", 2000)})
	b.SetBytes(int64(len(e.Data)))
	for b.Loop() {
		r.Event(e)
	}
}

// What is masked keeps its length, and JSON stays JSON.
func TestMask(t *testing.T) {
	r := redactor(t, map[string]string{"TOKEN": "tok/en-of-mine", "PIN": "1234567890"})
	for text, want := range map[string]string{
		`no secret`: `no secret`,
		`{"a":"tok/en-of-mine","b":"tok\/en-of-mine!"}`: `{"a":"**************","b":"***************!"}`,
		`{"pin":1234567890}`:                            `{"pin":1111111111}`,
		`tok/en-of-mine` + `tok/en-of-mine`:             strings.Repeat("*", 28),
	} {
		given := []byte(text)
		if got := string(r.Mask(given)); got != want || string(given) != text {
			t.Errorf("%s: masked %s, and changed %s", text, got, given)
		}
	}
}
