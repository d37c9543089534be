package intake

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// flood is an input that begins with some text and then repeats another for
// ever.
type flood struct {
	begin, again string
	at           int
	read         int64
}

func (f *flood) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		text := f.again
		if f.begin != "" {
			text, f.begin = f.begin, ""
		} else {
			text = text[f.at%len(text):]
			f.at += min(len(text), len(p)-n)
		}
		n += copy(p[n:], text)
	}
	f.read += int64(n)
	return n, nil
}

// Whatever never ends is refused with the line and the flag that would allow more,
// after little more than what is allowed was read, and with little memory.
func TestEndlessInput(t *testing.T) {
	const line, items, size = 64 << 10, 1000, 4 << 20
	cases := []struct {
		name, begin, again, format, file string
		want                             []string
	}{
		{"line", `{"prompt":"`, "x", "", "in", []string{"in:1: the line", "--max-line"}},
		{"second line", "{\"prompt\":\"p\"}\n\n{\"prompt\":\"", "x", "", "in", []string{"in:3: the line", "--max-line"}},
		{"zeros", "", "\x00", "", "in", []string{"in:1: the line", "--max-line"}},
		{"blanks", "", " ", "", "in", []string{"in:1: the line", "--max-line"}},
		{"line ends", "", "\n", "", "in", []string{"larger than 4MiB", "--max-input"}},
		{"lines", "", "{\"a\":1}\n", "", "in", []string{"in:1001:", "--max-items"}},
		{"lines of anything", "", "x\n", "jsonl", "in", []string{"in:1001:", "--max-items"}},
		{"element", "[{},\n{\"prompt\":\"\\\"],", "x", "", "in", []string{"in:2: the element", "--max-line"}},
		{"elements", "[", "{\"a\":[1,2]},\n", "", "in", []string{"in:1001:", "--max-items"}},
		{"depth", "[", "[", "", "in", []string{"in:1: the element", "--max-line"}},
		{"row", "prompt\n\"a\nb\"\n\"", "x\n", "csv", "in", []string{"in:4: the row", "--max-line"}},
		{"rows", "prompt\n", "\"a\nb\"\n", "", "in.csv", []string{"in.csv:2002:", "--max-items"}},
		{"yaml line", "jobs:\n- prompt: ", "x", "", "in.yaml", []string{"in.yaml:2: the line", "--max-line"}},
		{"yaml", "jobs:\n", "- prompt: p\n", "", "in.yaml", []string{"larger than 4MiB", "--max-input"}},
		{"prose", "", "Dear all,\n", "", "in", []string{"larger than 4MiB", "--max-input"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := &flood{begin: c.begin, again: c.again}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Read(in, c.file, Options{Format: c.format, Limits: Limits{Line: line, Items: items, Bytes: size}})
			runtime.ReadMemStats(&after)
			if _, ok := errors.AsType[*InputError](err); !ok {
				t.Fatalf("got %v (%T), want an *InputError", err, err)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			most := int64(3 * line)
			if strings.Contains(err.Error(), "--max-input") {
				most = size + 2*line
			}
			if in.read > most {
				t.Errorf("%d bytes were read, at most %d are needed", in.read, most)
			}
			room := 5 * most
			if slowtest.Raced {
				room = 8 * most // a buffer that grows is allocated twice
			}
			if took := int64(after.TotalAlloc - before.TotalAlloc); took > room {
				t.Errorf("%d bytes were allocated to read %d", took, in.read)
			}
		})
	}
}

// What is as large as it may be is read; one byte more is not.
func TestLimitsAreExact(t *testing.T) {
	job := func(n int) string { return fmt.Sprintf(`{"prompt":%q}`, strings.Repeat("x", n-len(`{"prompt":""}`))) }
	yaml := func(n int) string { return "jobs:\n- prompt: " + strings.Repeat("x", n-len("- prompt: ")) + "\n" }
	for name, text := range map[string]func(n int) string{
		"lines":  func(n int) string { return job(100) + "\n" + job(n) + "\n" + job(100) },
		"last":   func(n int) string { return job(100) + "\n" + job(n) },
		"list":   func(n int) string { return "[" + job(100) + "," + job(n) + "]" },
		"object": job,
		"csv":    func(n int) string { return "id,prompt\na," + strings.Repeat("x", n-2) + "\n" },
		"yaml":   yaml,
	} {
		opts := Options{Defaults: defaults(), Limits: Limits{Line: 500}}
		if items, err := Read(strings.NewReader(text(500)), "in", opts); err != nil || len(items.Errors()) > 0 {
			t.Errorf("%s of 500 bytes: %v, %v", name, err, items.Errors())
		}
		if _, err := Read(strings.NewReader(text(501)), "in", opts); err == nil || !strings.Contains(err.Error(), "500B") {
			t.Errorf("%s of 501 bytes: %v, want it refused", name, err)
		}
	}
	three := map[string]string{
		"lines": job(50) + "\n" + job(50) + "\n" + job(50), "list": "[" + job(50) + "," + job(50) + "," + job(50) + "]",
		"csv": "prompt\na\nb\nc", "yaml": "jobs: [{prompt: a}, {prompt: b}, {prompt: c}]",
	}
	for name, text := range three {
		if _, err := Read(strings.NewReader(text), "in", Options{Defaults: defaults(), Limits: Limits{Items: 3, Bytes: 1000}}); err != nil {
			t.Errorf("%s, three items: %v", name, err)
		}
		if _, err := Read(strings.NewReader(text), "in", Options{Defaults: defaults(), Limits: Limits{Items: 2}}); err == nil || !strings.Contains(err.Error(), "more than 2 items") {
			t.Errorf("%s, one item too many: %v", name, err)
		}
	}
	for _, l := range []Limits{{Line: -1}, {Items: -1}, {Bytes: -1}} {
		if _, err := Read(io.MultiReader(), "in", Options{Limits: l}); err == nil || !strings.Contains(err.Error(), "less than 0") {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
