package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/penstock-run/penstock/worker/agent"
)

func TestReadLines(t *testing.T) {
	tests := []struct {
		in    string
		limit int
		want  []string
	}{
		{"", 8, nil},
		{"a\nb", 8, []string{"1 a", "2 b"}},
		{"a\n\n\n", 8, []string{"1 a", "2 ", "3 "}},
		{"a\r\n", 8, []string{"1 a\r"}},
		{"12345678\n", 8, []string{"1 12345678"}},
		{"123456789\nx\n", 8, []string{"1 12345678 +1", "2 x"}},
		{strings.Repeat("x", 200_000) + "\ny", 3, []string{"1 xxx +199997", "2 y"}},
		{strings.Repeat("x", 200_000), 3, []string{"1 xxx +199997"}},
		{"nul \x00 \xff\n", 8, []string{"1 nul \x00 \xff"}},
	}
	for _, tt := range tests {
		for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in)), iotest.DataErrReader(strings.NewReader(tt.in))} {
			var got []string
			err := agent.ReadLines(r, agent.Stdout, tt.limit, func(l agent.Line) error {
				s := fmt.Sprintf("%d %s", l.N, l.Bytes)
				if l.Cut > 0 {
					s += fmt.Sprintf(" +%d", l.Cut)
				}
				got = append(got, s)
				return nil
			})
			if err != nil || strings.Join(got, "|") != strings.Join(tt.want, "|") {
				t.Errorf("%.40q: got %.200q, err %v, want %q", tt.in, got, err, tt.want)
			}
		}
	}
}

func TestReadLinesErrors(t *testing.T) {
	broken := errors.New("broken")
	var got []string
	err := agent.ReadLines(io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), agent.Stdout, 8, func(l agent.Line) error {
		got = append(got, string(l.Bytes))
		return nil
	})
	if !errors.Is(err, broken) || strings.Join(got, "|") != "a|half" {
		t.Errorf("got %q, err %v", got, err)
	}
	n := 0
	err = agent.ReadLines(strings.NewReader("a\nb\n"), agent.Stdout, 8, func(agent.Line) error { n++; return broken })
	if !errors.Is(err, broken) || n != 1 {
		t.Errorf("%d lines, err %v", n, err)
	}
}

// endless gives n bytes without a newline.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.left)
	for i := range p[:n] {
		p[i] = 'x'
	}
	e.left -= n
	return n, nil
}

// A line of 100 MB must not be held in memory.
func TestReadLinesBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cut := 0
	if err := agent.ReadLines(&endless{100 << 20}, agent.Stdout, 1<<20, func(l agent.Line) error { cut = l.Cut; return nil }); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if cut != 99<<20 {
		t.Errorf("%d bytes missing, want %d", cut, 99<<20)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("allocated %d bytes for a limit of %d", used, 1<<20)
	}
}

func FuzzReadLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\x00\n"), 3)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		limit = limit&0xff + 1
		var back []byte
		total := 0
		err := agent.ReadLines(bytes.NewReader(in), agent.Stdout, limit, func(l agent.Line) error {
			if len(l.Bytes) > limit || l.Cut > 0 && len(l.Bytes) != limit {
				t.Fatalf("%d bytes kept and %d cut with limit %d", len(l.Bytes), l.Cut, limit)
			}
			back = append(append(back, l.Bytes...), '\n')
			total += len(l.Bytes) + l.Cut + 1
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		whole := in
		if len(in) > 0 && in[len(in)-1] != '\n' {
			whole = append(bytes.Clone(in), '\n')
		}
		if total != len(whole) {
			t.Errorf("%d bytes accounted for, want %d", total, len(whole))
		}
		if total == len(back) && !bytes.Equal(back, whole) {
			t.Errorf("lines %q make %q", in, back)
		}
	})
}
